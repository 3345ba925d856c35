// <string.h> for NVRTC, which declares memcpy and memset itself but has no such header.
#pragma once
