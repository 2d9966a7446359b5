#include "cli/inspect/exponents.h"

#include <algorithm>
#include <array>

#include "codec/elements.h"

namespace deltawire::cli {
namespace {

constexpr size_t kSamplePieces = 64;
constexpr size_t kSamplePieceElements = 4096;

// What a field means when it is not a power of two; null otherwise.
const char* special_name(DType dtype, const FloatForm& form, size_t field) {
  if (field == 0) return "0, subnormal";
  // E4M3 has no infinities: its highest exponent is one like the others.
  if (field == form.mask && dtype != DType::kF8_E4M3) return "inf, nan";
  return nullptr;
}

}  // namespace

std::optional<FloatForm> float_form(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF8_E5M2:
      return FloatForm{1, 2, 0x1f, 15};
    case DType::kF8_E4M3:
      return FloatForm{1, 3, 0x0f, 7};
    case DType::kF16:
      return FloatForm{2, 10, 0x1f, 15};
    case DType::kBF16:
      return FloatForm{2, 7, 0xff, 127};
    case DType::kF32:
    case DType::kC64:
      return FloatForm{4, 23, 0xff, 127};
    case DType::kF64:
      return FloatForm{8, 52, 0x7ff, 1023};
    default:
      return std::nullopt;
  }
}

std::string exponent_name(DType dtype, size_t field) {
  const FloatForm form = float_form(dtype).value();
  const char* special = special_name(dtype, form, field);
  return special != nullptr ? special : std::to_string(int(field) - form.bias);
}

nlohmann::ordered_json exponent_json(DType dtype, size_t field) {
  const FloatForm form = float_form(dtype).value();
  const char* special = special_name(dtype, form, field);
  if (special != nullptr) return special;
  return int(field) - form.bias;
}

void count_exponents(const FloatForm& form, Bytes elements, ExponentCounts* counts) {
  counts->resize(size_t{form.mask} + 1);
  // Neighbours often share an exponent: four tables spare the wait for the same counter.
  std::array<ExponentCounts, 4> tables;
  for (ExponentCounts& table : tables) table.resize(counts->size());
  with_element(form.width, [&](auto zero) {
    using Element = decltype(zero);
    const size_t n = elements.size() / sizeof(Element);
    for (size_t i = 0; i < n; ++i) {
      const auto element = load_le<Element>(elements.data() + i * sizeof(Element));
      ++tables[i % tables.size()][size_t(element >> form.shift) & form.mask];
    }
  });
  for (const ExponentCounts& table : tables) {
    for (size_t field = 0; field < table.size(); ++field) (*counts)[field] += table[field];
  }
}

uint64_t sample_exponents(const FloatForm& form, Bytes elements, ExponentCounts* counts) {
  const uint64_t n = elements.size() / form.width;
  if (n <= kSamplePieces * kSamplePieceElements) {
    count_exponents(form, elements, counts);
    return n;
  }
  for (size_t piece = 0; piece < kSamplePieces; ++piece) {
    const uint64_t begin = (n - kSamplePieceElements) / (kSamplePieces - 1) * piece;
    count_exponents(form, elements.subspan(begin * form.width, kSamplePieceElements * form.width),
                    counts);
  }
  return kSamplePieces * kSamplePieceElements;
}

}  // namespace deltawire::cli
