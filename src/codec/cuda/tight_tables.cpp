#include "codec/cuda/tight_tables.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace deltawire::cuda {
namespace {

using tight::Model;

Result<std::unique_ptr<GapTables>> make_gap_tables(Stream stream) {
  std::vector<TableFrequencies> frequencies(256);
  for (unsigned q = 0; q < 256; ++q) {
    const RansTable& table = tight::gap_table(uint8_t(q));
    if (table.num_symbols > GapTable::kSymbols) return internal_error("a gap table is too large");
    frequencies[q].num_symbols = table.num_symbols;
    for (uint32_t s = 0; s < table.num_symbols; ++s) {
      frequencies[q].frequency[s] = uint16_t(table.decode[s] & 0xffff);
    }
  }
  auto made = std::make_unique<GapTables>();
  const size_t from_bytes = 256 * sizeof(TableFrequencies);
  DW_ASSIGN_OR_RETURN(const Buffer from, Buffer::allocate(Place::kDevice, from_bytes));
  DW_ASSIGN_OR_RETURN(made->decode, Buffer::allocate(Place::kDevice, 256 * sizeof(GapTable)));
  DW_ASSIGN_OR_RETURN(made->encode, Buffer::allocate(Place::kDevice, 256 * sizeof(EncodeTable)));
  DW_RETURN_IF_ERROR(copy(from.data(), frequencies.data(), from_bytes, stream));
  DW_RETURN_IF_ERROR(
      expand_tables(from.data<TableFrequencies>(), made->decode.data<GapTable>(), 256, stream));
  DW_RETURN_IF_ERROR(
      expand_tables(from.data<TableFrequencies>(), made->encode.data<EncodeTable>(), 256, stream));
  DW_RETURN_IF_ERROR(wait(stream));
  return made;
}

}  // namespace

void make_value_tables(const Model& model, uint8_t width, TableFrequencies* out) {
  const auto make = [&](size_t at, const uint8_t* codes, uint32_t count) {
    out[at].num_symbols = count;
    tight::coded_frequencies(codes, count, out[at].frequency);
  };
  for (size_t v = 0; v < model.num_contexts; ++v) {
    make(v, model.value_codes[v], tight::num_value_tokens(width));
  }
  make(model.num_contexts, model.escape_codes, tight::num_escapes(width));
}

TightKeys make_keys(const ClassSplit& split) {
  TightKeys keys{split.key_shift, split.key_mask, split.num_classes, {}, {}};
  std::fill(std::begin(keys.border), std::end(keys.border), uint16_t{256});
  keys.border[0] = 0;
  std::copy_n(split.thresholds, split.num_classes - 1U, keys.border + 1);
  tight::fill_class_of_key(split.thresholds, split.num_classes - 1U, keys.class_of_key);
  return keys;
}

void fill_contexts(const Model& model, uint8_t context_of_key[256]) {
  tight::fill_class_of_key(model.context_thresholds, model.num_contexts - 1U, context_of_key);
}

Result<const GapTables*> gap_tables(Stream stream) {
  static std::mutex mutex;
  // Never freed: the driver may be gone before static objects are.
  static auto& of_devices = *new std::map<int, std::unique_ptr<const GapTables>>();
  DW_ASSIGN_OR_RETURN(const int device, current_device());
  const std::lock_guard lock(mutex);
  std::unique_ptr<const GapTables>& made = of_devices[device];
  if (made == nullptr) {
    DW_ASSIGN_OR_RETURN(made, make_gap_tables(stream));
  }
  return made.get();
}

}  // namespace deltawire::cuda
