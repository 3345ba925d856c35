// <stdlib.h> for NVRTC, which declares malloc, free and abs itself but has no such header.
#pragma once
