#include "bridge/foreign.h"

#include <filesystem>

#include "base/file.h"

namespace deltawire {
namespace {

void add_number(uint64_t number, Hasher* hasher) { hasher->update(std::to_string(number) + "\n"); }

}  // namespace

std::vector<DialectName> dialect_names() {
  std::vector<DialectName> names;
  for (const Dialect* dialect : all_dialects()) {
    names.push_back({std::string(dialect->name()), std::string(dialect->title())});
  }
  return names;
}

Result<const Dialect*> require_dialect(const std::string& name) {
  if (const Dialect* dialect = find_dialect(name)) return dialect;
  std::string known;
  for (const DialectName& other : dialect_names()) {
    known += (known.empty() ? "" : ", ") + other.name + " (" + other.title + ")";
  }
  return invalid_argument("there is no dialect \"" + name + "\"; there are " + known);
}

std::string form_text(DType dtype, const Shape& shape) {
  return std::string(dtype_name(dtype)) + " " + shape_to_string(shape);
}

ForeignSummary summary_of(const Dialect& dialect, const ForeignInfo& info, bool tensors) {
  ForeignSummary summary{std::string(dialect.name()),
                         info.version,
                         info.base,
                         info.full,
                         info.encoding,
                         info.checksum,
                         info.tensors.size(),
                         info.num_files,
                         info.file_bytes};
  if (!tensors) return summary;
  for (const ForeignTensor& tensor : info.tensors) {
    const bool told = tensor.dtype && tensor.shape;
    summary.tensors.push_back({tensor.name,
                               told ? form_text(*tensor.dtype, *tensor.shape) : std::string(),
                               tensor.payload_bytes});
  }
  return summary;
}

std::string place_of(const Store& store) {
  const std::string folder = store.local_folder();
  if (folder.empty()) return store.url();
  std::error_code error;
  const auto whole = std::filesystem::weakly_canonical(std::filesystem::absolute(folder), error);
  std::string place = error ? folder : whole.string();
  while (place.size() > 1 && place.ends_with('/')) place.pop_back();
  return place;
}

std::string fingerprint_of(const ForeignInfo& info) {
  Hasher hasher(DigestKind::kXxh3_128);
  add_number(info.version, &hasher);
  add_number(info.num_files, &hasher);
  add_number(info.file_bytes, &hasher);
  hasher.update(info.encoding + "\n" + info.checksum + "\n" + info.content + "\n");
  for (const ForeignTensor& tensor : info.tensors) {
    hasher.update(tensor.name);
    add_number(tensor.payload_bytes, &hasher);
    if (tensor.checksum) hasher.update(tensor.checksum->hex);
  }
  return hasher.finish().hex();
}

}  // namespace deltawire
