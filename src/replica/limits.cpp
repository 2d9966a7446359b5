#include "replica/limits.h"

#include <algorithm>

#include "base/bytes.h"
#include "chain/names.h"
#include "format/checkpoint_files.h"
#include "tensor/safetensors.h"
#include "tensor/sharded_index.h"

namespace deltawire {
namespace {

// `gaps` of one-byte elements, all changed, in the widest form: 8 bytes of gap and one of value.
constexpr uint64_t kWorstCodec = 9;
constexpr uint64_t kHeaderRoom = uint64_t{256} << 20;

Status too_large(const Hop& hop, std::string_view what, uint64_t limit, uint64_t got) {
  return corruption("version " + std::to_string(hop.version) + ": " + std::string(what) +
                    ": expected at most " + std::to_string(limit) + " bytes, got " +
                    std::to_string(got));
}

Status check_delta(const Hop& hop, uint64_t weights) {
  const uint64_t limit = weights * kWorstCodec + kHeaderRoom;
  uint64_t bytes = 0;
  for (const PartRef& part : hop.parts) bytes += part.size_bytes;
  if (bytes > limit) return too_large(hop, "parts of a delta", limit, bytes);
  return {};
}

Status check_checkpoint(const Hop& hop, uint64_t weights) {
  uint64_t tensors = 0, index = 0, num_files = 0;
  std::vector<NamedSize> files;
  for (const PartRef& part : hop.parts) {
    DW_ASSIGN_OR_RETURN(const std::string name, checkpoint_file_of(part));
    if (!is_weights_file(name)) continue;  // a copy for engines: not fetched
    files.push_back({name, part.size_bytes});
    const bool data = name != kIndexFileName;
    num_files += data;
    (data ? tensors : index) += part.size_bytes;
  }
  DW_RETURN_IF_ERROR(check_weights_files(files).at("version " + std::to_string(hop.version)));
  const uint64_t limit = weights * 2 + num_files * kMaxHeaderBytes;
  if (tensors > limit) return too_large(hop, "safetensors files", limit, tensors);
  if (index > kMaxIndexBytes) return too_large(hop, "the index", kMaxIndexBytes, index);
  return {};
}

}  // namespace

uint64_t weights_bytes(const Schema& schema) {
  uint64_t bytes = 0;
  for (const Schema::Tensor& tensor : schema.tensors) {
    bytes += tensor_size_bytes(tensor.dtype, tensor.shape).value();  // checked when it was read
  }
  return bytes;
}

Status check_hop_sizes(std::span<const Hop> hops, const Schema& schema, uint64_t local_bytes) {
  constexpr uint64_t kSane = uint64_t{1} << 50;  // products below must not wrap
  const uint64_t weights = std::min(kSane, std::max(weights_bytes(schema), local_bytes));
  for (const Hop& hop : hops) {
    DW_RETURN_IF_ERROR(hop.base ? check_delta(hop, weights) : check_checkpoint(hop, weights));
  }
  return {};
}

Result<std::string> checkpoint_file_of(const PartRef& part) {
  const size_t slash = part.name.rfind('/');
  std::string name = part.name.substr(slash == std::string::npos ? 0 : slash + 1);
  Status status = check_checkpoint_file_name(name);
  const bool in_folder = part.name.starts_with(kFullPrefix) &&
                         std::count(part.name.begin(), part.name.end(), '/') == 2;
  if (status.ok() && !in_folder) {
    status = corruption("expected a file right inside " + std::string(kFullPrefix) + "VERSION/");
  }
  if (!status.ok()) return std::move(status).at(part.name);
  return name;
}

}  // namespace deltawire
