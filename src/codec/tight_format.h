// The tables of a `tight` payload, shared by its writer and its reader. They shape what goes to
// disk: docs/format.md, "tight", says how, field by field and in the same order.
#pragma once

#include "codec/bit_io.h"
#include "codec/rans.h"
#include "kernels/kernels.h"
#include "kernels/tight_math.h"

namespace deltawire::tight {

// The table of gaps for a change probability of 2^(-q/16). Its last symbol escapes to a raw gap of
// kMaxBlockLog2 bits. Built once per process; the same on every machine.
const RansTable& gap_table(uint8_t q);

// Tables of values: each symbol's weight is 2^(0.4 code); code 0 is the least weight that can
// still be coded.
inline constexpr uint8_t kMaxCode = 31;
void coded_frequencies(const uint8_t* codes, uint32_t num_symbols, uint16_t* frequencies);
void build_coded_table(const uint8_t* codes, uint32_t num_symbols, RansTable* table);

}  // namespace deltawire::tight
