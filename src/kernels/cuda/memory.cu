#include "kernels/cuda/memory.h"

#include "kernels/cuda/check.cuh"

namespace deltawire::cuda {

Status check_device() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return {};
  (void)cudaGetLastError();  // told here: no later call is to find it
  return Status(Code::kDevice,
                std::string("no GPU can be used here: ") +
                    (error == cudaSuccess ? "there is none" : cudaGetErrorString(error)));
}

Result<int> num_devices() {
  int count = 0;
  DW_CUDA(cudaGetDeviceCount(&count));
  return count;
}

Result<int> current_device() {
  int device = 0;
  DW_CUDA(cudaGetDevice(&device));
  return device;
}

std::optional<int> device_of(const void* memory) noexcept {
  cudaPointerAttributes found{};
  if (cudaPointerGetAttributes(&found, memory) != cudaSuccess) {
    (void)cudaGetLastError();  // so that nobody takes it for theirs
    return std::nullopt;
  }
  if (found.type != cudaMemoryTypeDevice) return std::nullopt;
  return found.device;
}

UseDevice::UseDevice(int device) noexcept {
  if (cudaGetDevice(&before_) != cudaSuccess || before_ == device) {
    before_ = -1;
  } else {
    (void)cudaSetDevice(device);  // what fails here fails again in the first call, which tells it
  }
}

UseDevice::~UseDevice() {
  if (before_ >= 0) (void)cudaSetDevice(before_);
}

Result<DeviceInfo> device_info() {
  DW_RETURN_IF_ERROR(check_device());
  DeviceInfo info;
  int device = 0;
  cudaDeviceProp properties;
  DW_CUDA(cudaGetDevice(&device));
  DW_CUDA(cudaGetDeviceProperties(&properties, device));
  DW_CUDA(cudaDriverGetVersion(&info.driver));
  DW_CUDA(cudaRuntimeGetVersion(&info.runtime));
  DW_CUDA(cudaMemGetInfo(&info.free_bytes, &info.total_bytes));
  info.name = properties.name;
  info.multiprocessors = properties.multiProcessorCount;
  info.capability = 10 * properties.major + properties.minor;
  return info;
}

Result<uint64_t> free_memory() {
  size_t free = 0, total = 0;
  DW_CUDA(cudaMemGetInfo(&free, &total));
  return uint64_t{free};
}

Result<Buffer> Buffer::allocate(Place place, size_t num_bytes) {
  Buffer buffer;
  buffer.place_ = place;
  if (num_bytes == 0) return std::move(buffer);
  if (place == Place::kDevice) {
    DW_CUDA(cudaMalloc(&buffer.data_, num_bytes));
  } else {
    DW_CUDA(cudaMallocHost(&buffer.data_, num_bytes));
  }
  buffer.size_ = num_bytes;
  return std::move(buffer);
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if (place_ == Place::kDevice) {
    (void)cudaFree(data_);
  } else {
    (void)cudaFreeHost(data_);
  }
}

Result<OwnedStream> OwnedStream::create(Urgency urgency) {
  cudaStream_t stream = nullptr;
  int least = 0, greatest = 0;
  DW_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  DW_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                       urgency == Urgency::kUrgent ? greatest : least));
  return OwnedStream(stream);
}

OwnedStream::~OwnedStream() {
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

Status copy(void* to, const void* from, size_t num_bytes, Stream stream) {
  if (num_bytes == 0) return {};
  DW_CUDA(cudaMemcpyAsync(to, from, num_bytes, cudaMemcpyDefault, stream));
  return {};
}

Status copy_rows(void* to, size_t to_stride, const void* from, size_t from_stride, size_t row_bytes,
                 size_t rows, Stream stream) {
  if (to_stride == row_bytes && (from_stride == row_bytes || rows == 1)) {
    return copy(to, from, row_bytes * rows, stream);
  }
  DW_CUDA(cudaMemcpy2DAsync(to, to_stride, from, from_stride, row_bytes, rows, cudaMemcpyDefault,
                            stream));
  return {};
}

Status fill_zero(void* device, size_t num_bytes, Stream stream) {
  if (num_bytes == 0) return {};
  DW_CUDA(cudaMemsetAsync(device, 0, num_bytes, stream));
  return {};
}

Status wait(Stream stream) {
  DW_CUDA(cudaStreamSynchronize(stream));
  return {};
}

Status order_after(Stream later, Stream earlier) {
  cudaEvent_t event = nullptr;
  DW_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const auto pass = [&]() -> Status {
    DW_CUDA(cudaEventRecord(event, earlier));
    DW_CUDA(cudaStreamWaitEvent(later, event));
    return {};
  };
  Status status = pass();
  (void)cudaEventDestroy(event);  // lives on until it is passed
  return status;
}

}  // namespace deltawire::cuda
