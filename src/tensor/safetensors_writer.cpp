#include "tensor/safetensors_writer.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "tensor/safetensors.h"
#include "tensor/text.h"

namespace deltawire {

Result<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& path,
                                                    std::vector<TensorSpec> tensors,
                                                    const Metadata& metadata) {
  DW_ASSIGN_OR_RETURN(auto header,
                      located(serialise_safetensors_header(tensors, metadata), path.string()));
  std::vector<uint64_t> ends;
  uint64_t end = 0;
  for (const TensorSpec& tensor : tensors) {
    end += *tensor_size_bytes(tensor.dtype, tensor.shape);
    ends.push_back(end);
  }
  DW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  DW_RETURN_IF_ERROR(file.write(text_bytes(header)));
  return SafetensorsWriter(path, std::move(file), std::move(tensors), std::move(ends));
}

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, AtomicFile file,
                                     std::vector<TensorSpec> tensors, std::vector<uint64_t> ends)
    : path_(std::move(path)),
      file_(std::move(file)),
      tensors_(std::move(tensors)),
      ends_(std::move(ends)) {}

Status SafetensorsWriter::invalid(std::string message) const {
  return invalid_argument(path_.string() + ": " + std::move(message));
}

Status SafetensorsWriter::write(Bytes piece) {
  if (!open_) return invalid("already committed, or failed before");
  if (piece.size() > remaining_bytes()) {
    return invalid("got " + std::to_string(piece.size()) + " bytes, expected at most " +
                   std::to_string(remaining_bytes()) + " more");
  }
  if (Status status = file_.write(piece); !status.ok()) {
    open_ = false;
    return status;
  }
  written_ += piece.size();
  return {};
}

Status SafetensorsWriter::write_tensor(std::string_view name, Bytes bytes) {
  // Skip the tensors that write() has completed. An empty last tensor is complete only once it is
  // named.
  while (next_ < ends_.size() && begin_of(next_) < written_ && ends_[next_] <= written_) ++next_;
  if (next_ == ends_.size()) return invalid("no tensor is left for " + quote(name));
  const uint64_t begin = begin_of(next_);
  const std::string place = "tensor " + quote(tensors_[next_].name) + ": ";
  if (begin != written_) return invalid(place + "already begun in pieces");
  if (tensors_[next_].name != name) return invalid(place + "is next, got " + quote(name));
  if (ends_[next_] - begin != bytes.size()) {
    return invalid(place + "takes " + std::to_string(ends_[next_] - begin) + " bytes, got " +
                   std::to_string(bytes.size()));
  }
  DW_RETURN_IF_ERROR(write(bytes));
  ++next_;
  return {};
}

Status SafetensorsWriter::commit() {
  if (!open_) return invalid("already committed, or failed before");
  for (size_t i = 0; i < ends_.size(); ++i) {
    if (ends_[i] <= written_) continue;
    return invalid("tensor " + quote(tensors_[i].name) + ": got " +
                   std::to_string(written_ - begin_of(i)) + " of " +
                   std::to_string(ends_[i] - begin_of(i)) + " bytes");
  }
  open_ = false;
  return file_.commit();
}

namespace {

constexpr size_t kAlignment = 8;

Status check_names(const std::vector<TensorSpec>& tensors, const Metadata& metadata) {
  std::unordered_set<std::string_view> seen;
  for (const TensorSpec& tensor : tensors) {
    const std::string place = "tensor " + quote(tensor.name) + ": ";
    if (!is_utf8(tensor.name)) return invalid_argument(place + "name is not valid UTF-8");
    if (tensor.name == kMetadataKey) return invalid_argument(place + "name is reserved");
    if (!seen.insert(tensor.name).second) return invalid_argument(place + "name is used twice");
    if (tensor.shape.size() > kMaxRank) {
      return invalid_argument(place + "over " + std::to_string(kMaxRank) + " dimensions");
    }
  }
  seen.clear();
  for (const auto& [key, value] : metadata) {
    const std::string place = "metadata key " + quote(key) + ": ";
    if (!is_utf8(key) || !is_utf8(value)) return invalid_argument(place + "not valid UTF-8");
    if (!seen.insert(key).second) return invalid_argument(place + "used twice");
  }
  return {};
}

std::string json_string(const std::string& text) { return json_text(nlohmann::json(text)); }

std::string json_metadata(const Metadata& metadata) {
  std::string json = json_string(std::string(kMetadataKey)) + ":{";
  for (const auto& [key, value] : metadata) {
    if (json.back() != '{') json += ',';
    json += json_string(key) + ":" + json_string(value);
  }
  return json + "}";
}

std::string json_entry(const TensorSpec& tensor, uint64_t begin, uint64_t end) {
  std::string json = json_string(tensor.name) + R"(:{"dtype":")";
  json.append(dtype_name(tensor.dtype)).append(R"(","shape":[)");
  for (const uint64_t extent : tensor.shape) {
    if (json.back() != '[') json += ',';
    json += std::to_string(extent);
  }
  return json + R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

}  // namespace

Result<uint64_t> data_size_bytes(const std::vector<TensorSpec>& tensors) {
  uint64_t total = 0;
  for (const TensorSpec& tensor : tensors) {
    DW_ASSIGN_OR_RETURN(auto size, located(tensor_size_bytes(tensor.dtype, tensor.shape),
                                           "tensor " + quote(tensor.name)));
    if (!checked_add(total, size, &total)) {
      return invalid_argument("tensor " + quote(tensor.name) + ": tensors take over 2^64 bytes");
    }
  }
  return total;
}

// Written by hand to keep the order: a JSON library would sort the keys.
Result<std::string> serialise_safetensors_header(const std::vector<TensorSpec>& tensors,
                                                 const Metadata& metadata) {
  DW_RETURN_IF_ERROR(check_names(tensors, metadata));
  if (auto total = data_size_bytes(tensors); !total.ok()) return std::move(total).status();
  std::string header(sizeof(uint64_t), '\0');
  header += '{';
  if (!metadata.empty()) header += json_metadata(metadata);
  uint64_t begin = 0;
  for (const TensorSpec& tensor : tensors) {
    if (header.back() != '{') header += ',';
    const uint64_t end = begin + *tensor_size_bytes(tensor.dtype, tensor.shape);
    header += json_entry(tensor, begin, end);
    begin = end;
  }
  header += '}';
  header.resize((header.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const uint64_t length = header.size() - sizeof(uint64_t);
  if (length > kMaxHeaderBytes) {
    return invalid_argument("header takes " + std::to_string(length) +
                            " bytes, over the limit of " + std::to_string(kMaxHeaderBytes));
  }
  store_le(header.data(), length);
  return header;
}

}  // namespace deltawire
