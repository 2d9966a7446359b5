// The one symbol of a BLAS with bfloat16 that vLLM's extension for the CPU asks for, and that torch
// from PyPI does not have. Plain loops: test models are tiny.
#include <stdint.h>
#include <string.h>

static float widened(uint16_t bits) {
  const uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

void sbgemm_(const char* trans_a, const char* trans_b, const int* m, const int* n, const int* k,
             const float* alpha, const uint16_t* a, const int* lda, const uint16_t* b,
             const int* ldb, const float* beta, float* c, const int* ldc) {
  const int a_is_turned = *trans_a != 'N' && *trans_a != 'n';
  const int b_is_turned = *trans_b != 'N' && *trans_b != 'n';
  for (long column = 0; column < *n; ++column) {
    for (long row = 0; row < *m; ++row) {
      float sum = 0;
      for (long i = 0; i < *k; ++i) {
        sum += widened(a_is_turned ? a[i + row * *lda] : a[row + i * *lda]) *
               widened(b_is_turned ? b[column + i * *ldb] : b[i + column * *ldb]);
      }
      float* const out = c + row + column * *ldc;
      *out = *alpha * sum + (*beta != 0 ? *beta * *out : 0);
    }
  }
}
