// <assert.h> for NVRTC, which defines assert itself but heeds NDEBUG only where it is defined
// on the command line. No include guard: as in C, the last NDEBUG before an include counts.
#ifdef NDEBUG
#undef assert
#define assert(condition) (static_cast<void>(0))
#endif
