#include "replica/limits.h"

#include <algorithm>

#include "base/bytes.h"
#include "chain/names.h"
#include "format/checkpoint_files.h"
#include "tensor/safetensors.h"
#include "tensor/sharded_index.h"

namespace deltawire {
namespace {

// The worst case: `gaps` of one-byte elements that all changed, with 8 bytes per gap and one per
// value.
constexpr uint64_t kWorstCodec = 9;
constexpr uint64_t kHeaderBytes = uint64_t{256} << 20;

Status too_large(const Hop& hop, std::string_view what, uint64_t limit, uint64_t got) {
  return corruption("version " + std::to_string(hop.version) + ": " + std::string(what) +
                    ": expected at most " + std::to_string(limit) + " bytes, got " +
                    std::to_string(got));
}

Status check_delta(const Hop& hop, uint64_t weights) {
  const uint64_t limit = weights * kWorstCodec + kHeaderBytes;
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
    if (!is_weights_file(name)) continue;  // a copy for engines, not fetched
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
  for (const TensorSpec& tensor : schema.tensors) {
    // checked when the schema was read
    bytes += tensor_size_bytes(tensor.dtype, tensor.shape).value();
  }
  return bytes;
}

Status check_hop_sizes(std::span<const Hop> hops, const Schema& schema, uint64_t local_bytes) {
  constexpr uint64_t kSane = uint64_t{1} << 50;  // keeps the products below from overflowing
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

namespace {

constexpr uint64_t kFileBytes = uint64_t{64} << 20;  // at least, so that entries share files

}  // namespace

Result<MutableBytes> SpillSpace::take(uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  if (size_bytes > memory_bytes_ - used_) return take_from_file(size_bytes);
  rooms_.push_back(std::make_unique_for_overwrite<uint8_t[]>(size_bytes));
  used_ += size_bytes;
  return MutableBytes(rooms_.back().get(), size_bytes);
}

Result<MutableBytes> SpillSpace::take_from_file(uint64_t size_bytes) {
  if (files_.empty() || size_bytes > files_.back().bytes().size() - file_used_) {
    const std::string name = "spill-" + std::to_string(files_.size());
    DW_ASSIGN_OR_RETURN(MutableFile file,
                        MutableFile::create(folder_ / name, std::max(size_bytes, kFileBytes)));
    files_.push_back(std::move(file));
    file_used_ = 0;
  }
  const MutableBytes space = files_.back().bytes().subspan(file_used_, size_bytes);
  file_used_ += size_bytes;
  spilled_ += size_bytes;
  return space;
}

Result<Bytes> SpillSpace::keep(std::vector<uint8_t> bytes) {
  bytes.shrink_to_fit();
  {
    const std::lock_guard lock(mutex_);
    if (bytes.size() <= memory_bytes_ - used_) {
      used_ += bytes.size();
      kept_.push_back(std::move(bytes));
      return Bytes(kept_.back());
    }
  }
  DW_ASSIGN_OR_RETURN(const MutableBytes space, take(bytes.size()));
  std::copy(bytes.begin(), bytes.end(), space.begin());
  return Bytes(space);
}

void SpillSpace::clear() noexcept {
  const std::lock_guard lock(mutex_);
  rooms_.clear();
  kept_.clear();
  files_.clear();
  used_ = spilled_ = file_used_ = 0;
}

}  // namespace deltawire
