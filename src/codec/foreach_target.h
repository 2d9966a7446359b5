// Includes the file named by DELTAWIRE_TARGETS_OF again for each target that coding gains from: the
// plainest one, and the first with BMI2 on x86. No include guard: it does its work every time.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE DELTAWIRE_TARGETS_OF
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>
