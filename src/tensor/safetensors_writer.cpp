#include "tensor/safetensors_writer.h"

#include <utility>

#include "tensor/text.h"

namespace deltawire {

Result<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& path,
                                                    std::vector<TensorSpec> tensors,
                                                    const Metadata& metadata) {
  auto header = serialise_safetensors_header(tensors, metadata);
  if (!header.ok()) return std::move(header).status().at(path.string());
  std::vector<uint64_t> ends;
  uint64_t end = 0;
  for (const TensorSpec& tensor : tensors) {
    end += *tensor_size_bytes(tensor.dtype, tensor.shape);
    ends.push_back(end);
  }
  DW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  DW_RETURN_IF_ERROR(
      file.write({reinterpret_cast<const uint8_t*>(header->data()), header->size()}));
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
  // Skip what write() has passed. An empty tensor at the very end is not passed until it is named.
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

}  // namespace deltawire
