#include "device/context.h"

#include <algorithm>

#include "base/copy_parallel.h"
#include "kernels/cuda/convert.h"

namespace deltawire::cuda {
namespace {

constexpr uint64_t kLeastScratch = uint64_t{8} << 20;

}  // namespace

Status available() { return check_device(); }

std::optional<int> device_number(const void* memory) { return device_of(memory); }

Result<uint64_t> free_beside(const void* memory) {
  DW_RETURN_IF_ERROR(available());
  DW_ASSIGN_OR_RETURN(const int in_use, current_device());
  const UseDevice use(device_of(memory).value_or(in_use));
  return free_memory();
}

Result<Context> Context::create(const ContextOptions& options) {
  if (options.scratch_bytes < kLeastScratch) {
    return invalid_argument("scratch_bytes: expected at least " + std::to_string(kLeastScratch) +
                            ", got " + std::to_string(options.scratch_bytes));
  }
  DW_RETURN_IF_ERROR(available());
  DW_ASSIGN_OR_RETURN(const int in_use, current_device());
  const int device = device_of(options.beside).value_or(in_use);
  return Context(std::make_unique<Impl>(options, device));
}

Context::Context(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

std::function<void(std::vector<uint8_t>)> Context::recycler() const {
  return [spare = impl_->spare](std::vector<uint8_t> payload) {
    spare->give_back(std::move(payload));
  };
}

Status fetch_bytes(const Lane& lane, const Contents& contents, uint64_t offset,
                   std::span<uint8_t> out, Stream stream) {
  DW_ASSIGN_OR_RETURN(const NewKind kind, kind_of(contents.array.dtype, contents.as));
  DW_RETURN_IF_ERROR(check_memory(contents.as, contents.array.data, contents.size_bytes));
  if (offset > contents.size_bytes || out.size() > contents.size_bytes - offset) {
    return invalid_argument("bytes " + std::to_string(offset) + " to " +
                            std::to_string(offset + out.size()) + " of an array of " +
                            std::to_string(contents.size_bytes));
  }
  if (kind == NewKind::kSame) {
    const auto* const data = static_cast<const uint8_t*>(contents.array.data);
    DW_RETURN_IF_ERROR(copy(out.data(), data + offset, out.size(), stream));
    return wait(stream);
  }
  return fetch_converted(lane, contents.array.data, kind, offset, out, stream);
}

// Converts on the device, in pieces of whole elements.
Status fetch_converted(const Lane& lane, const void* data, NewKind kind, uint64_t offset,
                       std::span<uint8_t> out, Stream stream) {
  const uint64_t end = offset + out.size(), width = converted_width(kind);
  const uint64_t piece_bytes =
      std::min<uint64_t>(lane.scratch_bytes / 2, out.size() + 2) / width * width;
  DW_ASSIGN_OR_RETURN(uint8_t* const piece, lane.workspace->get(Workspace::kSlots, piece_bytes));
  for (uint64_t at = offset; at < end;) {
    const uint64_t first = at / width;
    const uint64_t stop = std::min(end, first * width + piece_bytes);
    DW_RETURN_IF_ERROR(
        convert(data, kind, first, (stop + width - 1) / width - first, piece, stream));
    DW_RETURN_IF_ERROR(copy(out.data() + (at - offset), piece + at % width, stop - at, stream));
    at = stop;
  }
  return wait(stream);
}

Status Context::fetch(const Contents& contents, uint64_t offset, std::span<uint8_t> out,
                      Stream stream) {
  const UseDevice use(impl_->device);
  return fetch_bytes(impl_->lane(), contents, offset, out, stream);
}

// Through pinned memory: one thread copies what is not pinned at a tenth of the bus's speed.
Status send_bytes(Context::Impl& impl, std::span<const uint8_t> bytes, void* to, Stream stream) {
  constexpr size_t kPiece = size_t{16} << 20;
  Workspace& workspace = impl.workspace;
  const auto send_piece = [&](size_t number) -> Status {
    const size_t at = number * kPiece, size = std::min(kPiece, bytes.size() - at);
    DW_ASSIGN_OR_RETURN(const Stream own, workspace.stream(number % 2));
    if (number < 2) DW_RETURN_IF_ERROR(order_after(own, stream));
    DW_RETURN_IF_ERROR(wait(own));  // the last but one has left
    DW_ASSIGN_OR_RETURN(uint8_t* const piece, workspace.host_piece(number % 2, size));
    copy_parallel(bytes.subspan(at, size), {piece, size}, &impl.pool);
    return copy(static_cast<uint8_t*>(to) + at, piece, size, own);
  };
  Status status;
  for (size_t i = 0; status.ok() && i * kPiece < bytes.size(); ++i) status = send_piece(i);
  for (size_t i = 0; status.ok() && i < 2; ++i) {
    const Result<Stream> own = workspace.stream(i);
    status = own.ok() ? wait(*own) : own.status();
  }
  if (!status.ok()) workspace.settle(stream);
  return status;
}

Status Context::send(std::span<const uint8_t> bytes, void* to, Stream stream) {
  const UseDevice use(impl_->device);
  return send_bytes(*impl_, bytes, to, stream);
}

}  // namespace deltawire::cuda
