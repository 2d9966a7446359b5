// What benches of the GPU need: weights to work on, and what others would do with them.
#pragma once

#include <cstdint>

#include "kernels/cuda/memory.h"

namespace deltawire::cuda {

// n bf16 weights and the same after a step: small ones change more often than large ones, as the
// measured law of RL steps says; `rate` sets how many. Both on the device.
Status simulate_step(uint16_t* old_weights, uint16_t* new_weights, uint64_t n, uint64_t seed,
                     float rate, Stream stream);
// Makes every step between the two +1 or -1, the way it goes already.
Status make_unit_steps(const uint16_t* old_weights, uint16_t* new_weights, uint64_t n,
                       Stream stream);
// The new weights as the f32 that they were rounded from.
Status widen(const uint16_t* weights, float* wide, uint64_t n, Stream stream);

// Bounds: what copying, and reading two arrays, takes. Multiples of sixteen bytes.
Status copy_kernel(const void* from, void* to, uint64_t num_bytes, Stream stream);
Status read_both(const void* a, const void* b, uint64_t bytes_a, uint64_t bytes_b, uint32_t* sink,
                 Stream stream);

// A baseline: positions that differ by cub::DeviceSelect, then a gather of the new values.
// `scratch` of select_scratch() bytes; n < 2^31. `*count` is on the device.
size_t select_scratch(uint64_t n);
Status select_changes(const uint16_t* old_weights, const uint16_t* new_weights, uint64_t n,
                      void* scratch, int32_t* positions, uint16_t* values, int32_t* count,
                      Stream stream);
// The other way: values to absolute positions, one thread each, as index_put_ does.
Status put_values(uint16_t* weights, const int32_t* positions, const uint16_t* values,
                  uint64_t count, Stream stream);

// How many bytes of two arrays differ; zero before, on the device.
Status count_different(const void* a, const void* b, uint64_t num_bytes, unsigned long long* count,
                       Stream stream);

}  // namespace deltawire::cuda
