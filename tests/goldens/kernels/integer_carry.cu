// add, sub and mad with a carry from word to word: three rows for the three words of a chain.

#include "spellings.cuh"

#define BITS_u32 "32"
#define BITS_u64 "64"

#define CHAIN(first, second, third, W)                                                      \
    do {                                                                                    \
        W d, e, f;                                                                          \
        asm volatile("{" first " %0, %3, %4; " second " %1, %5, %3; " third " %2, %4, %5;}" \
                     : "=" REGISTER_##W(d), "=" REGISTER_##W(e), "=" REGISTER_##W(f)        \
                     : REGISTER_##W((W)a), REGISTER_##W((W)b), REGISTER_##W((W)c));         \
        STORE(d);                                                                           \
        STORE(e);                                                                           \
        STORE(f);                                                                           \
    } while (0)

#define MAD_CHAIN(first, second, third, W)                                           \
    do {                                                                             \
        W d, e, f;                                                                   \
        asm volatile("{" first " %0, %3, %4, %5; " second " %1, %5, %3, %4; " third  \
                     " %2, %4, %5, %3;}"                                             \
                     : "=" REGISTER_##W(d), "=" REGISTER_##W(e), "=" REGISTER_##W(f) \
                     : REGISTER_##W((W)a), REGISTER_##W((W)b), REGISTER_##W((W)c));  \
        STORE(d);                                                                    \
        STORE(e);                                                                    \
        STORE(f);                                                                    \
    } while (0)

// An instruction that takes the carry which another kind of instruction gives.
#define AFTER_MAD(first, second, W)                                                             \
    do {                                                                                        \
        W d;                                                                                    \
        asm volatile("{.reg .b" BITS_##W " t; " first " t, %1, %2, %3; " second " %0, %1, %2;}" \
                     : "=" REGISTER_##W(d)                                                      \
                     : REGISTER_##W((W)a), REGISTER_##W((W)b), REGISTER_##W((W)c));             \
        STORE(d);                                                                               \
    } while (0)
#define BEFORE_MAD(first, second, W)                                                            \
    do {                                                                                        \
        W d;                                                                                    \
        asm volatile("{.reg .b" BITS_##W " t; " first " t, %1, %2; " second " %0, %1, %2, %3;}" \
                     : "=" REGISTER_##W(d)                                                      \
                     : REGISTER_##W((W)a), REGISTER_##W((W)b), REGISTER_##W((W)c));             \
        STORE(d);                                                                               \
    } while (0)

SPELLED(integer_carry) {
    OPERANDS;
    CHAIN("add.cc.u32", "addc.cc.u32", "addc.u32", u32);
    CHAIN("add.cc.s32", "addc.cc.s32", "addc.s32", u32);
    CHAIN("add.cc.u64", "addc.cc.u64", "addc.u64", u64);
    CHAIN("add.cc.s64", "addc.cc.s64", "addc.s64", u64);
    CHAIN("sub.cc.u32", "subc.cc.u32", "subc.u32", u32);
    CHAIN("sub.cc.s32", "subc.cc.s32", "subc.s32", u32);
    CHAIN("sub.cc.u64", "subc.cc.u64", "subc.u64", u64);
    CHAIN("sub.cc.s64", "subc.cc.s64", "subc.s64", u64);
    MAD_CHAIN("mad.lo.cc.u32", "madc.hi.cc.u32", "madc.lo.u32", u32);
    MAD_CHAIN("mad.lo.cc.s32", "madc.hi.cc.s32", "madc.lo.s32", u32);
    MAD_CHAIN("mad.lo.cc.u64", "madc.hi.cc.u64", "madc.lo.u64", u64);
    MAD_CHAIN("mad.lo.cc.s64", "madc.hi.cc.s64", "madc.lo.s64", u64);
    MAD_CHAIN("mad.hi.cc.u32", "madc.lo.cc.u32", "madc.hi.u32", u32);
    MAD_CHAIN("mad.hi.cc.s32", "madc.lo.cc.s32", "madc.hi.s32", u32);
    MAD_CHAIN("mad.hi.cc.u64", "madc.lo.cc.u64", "madc.hi.u64", u64);
    MAD_CHAIN("mad.hi.cc.s64", "madc.lo.cc.s64", "madc.hi.s64", u64);
    CHAIN("sub.cc.u32", "addc.cc.u32", "subc.u32", u32);
    CHAIN("add.cc.u32", "subc.cc.u32", "addc.u32", u32);
    AFTER_MAD("mad.lo.cc.u32", "addc.u32", u32);
    AFTER_MAD("mad.lo.cc.u32", "subc.u32", u32);
    BEFORE_MAD("add.cc.u32", "madc.lo.u32", u32);
    BEFORE_MAD("sub.cc.u32", "madc.lo.u32", u32);
    AFTER_MAD("mad.hi.cc.u32", "addc.u32", u32);
    AFTER_MAD("mad.hi.cc.u32", "subc.u32", u32);
    BEFORE_MAD("add.cc.u32", "madc.hi.u32", u32);
    BEFORE_MAD("sub.cc.u32", "madc.hi.u32", u32);
    CHAIN("sub.cc.s32", "addc.cc.s32", "subc.s32", u32);
    CHAIN("add.cc.s32", "subc.cc.s32", "addc.s32", u32);
    AFTER_MAD("mad.lo.cc.s32", "addc.s32", u32);
    AFTER_MAD("mad.lo.cc.s32", "subc.s32", u32);
    BEFORE_MAD("add.cc.s32", "madc.lo.s32", u32);
    BEFORE_MAD("sub.cc.s32", "madc.lo.s32", u32);
    AFTER_MAD("mad.hi.cc.s32", "addc.s32", u32);
    AFTER_MAD("mad.hi.cc.s32", "subc.s32", u32);
    BEFORE_MAD("add.cc.s32", "madc.hi.s32", u32);
    BEFORE_MAD("sub.cc.s32", "madc.hi.s32", u32);
    CHAIN("sub.cc.u64", "addc.cc.u64", "subc.u64", u64);
    CHAIN("add.cc.u64", "subc.cc.u64", "addc.u64", u64);
    AFTER_MAD("mad.lo.cc.u64", "addc.u64", u64);
    AFTER_MAD("mad.lo.cc.u64", "subc.u64", u64);
    BEFORE_MAD("add.cc.u64", "madc.lo.u64", u64);
    BEFORE_MAD("sub.cc.u64", "madc.lo.u64", u64);
    AFTER_MAD("mad.hi.cc.u64", "addc.u64", u64);
    AFTER_MAD("mad.hi.cc.u64", "subc.u64", u64);
    BEFORE_MAD("add.cc.u64", "madc.hi.u64", u64);
    BEFORE_MAD("sub.cc.u64", "madc.hi.u64", u64);
    CHAIN("sub.cc.s64", "addc.cc.s64", "subc.s64", u64);
    CHAIN("add.cc.s64", "subc.cc.s64", "addc.s64", u64);
    AFTER_MAD("mad.lo.cc.s64", "addc.s64", u64);
    AFTER_MAD("mad.lo.cc.s64", "subc.s64", u64);
    BEFORE_MAD("add.cc.s64", "madc.lo.s64", u64);
    BEFORE_MAD("sub.cc.s64", "madc.lo.s64", u64);
    AFTER_MAD("mad.hi.cc.s64", "addc.s64", u64);
    AFTER_MAD("mad.hi.cc.s64", "subc.s64", u64);
    BEFORE_MAD("add.cc.s64", "madc.hi.s64", u64);
    BEFORE_MAD("sub.cc.s64", "madc.hi.s64", u64);
}
