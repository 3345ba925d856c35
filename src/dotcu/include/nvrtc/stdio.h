// <stdio.h> for NVRTC, which declares printf itself but has no such header.
#pragma once
