
#include "codec/checks.h"
#include "device/context.h"
#include "format/layout.h"

namespace deltawire::cuda {

Result<NewKind> kind_of(DType given, DType as) {
  if (given == as) return NewKind::kSame;
  if (as == DType::kBF16 && given == DType::kF32) return NewKind::kF32AsBf16;
  if (as == DType::kBF16 && given == DType::kF16) return NewKind::kF16AsBf16;
  return invalid_argument(std::string(dtype_name(given)) + " cannot be read as " +
                          std::string(dtype_name(as)) + "; F32 and F16 can as BF16");
}

Layout array_layout(const DeviceArray& array) {
  Layout layout = deltawire::layout_of(array.dtype);
  layout.rows = array.matrices.rows;
  layout.columns = array.matrices.columns;
  return layout;
}

Status check_memory(DType dtype, const void* data, uint64_t size_bytes) {
  DW_RETURN_IF_ERROR(check_array(deltawire::layout_of(dtype), size_bytes));
  if (data == nullptr && size_bytes != 0) {
    return invalid_argument("an array of " + std::to_string(size_bytes) + " bytes at null");
  }
  return {};
}

Result<DevicePair> device_pair(const Pair& pair) {
  DW_ASSIGN_OR_RETURN(const NewKind kind, kind_of(pair.after.dtype, pair.before.dtype));
  DW_RETURN_IF_ERROR(check_memory(pair.before.dtype, pair.before.data, pair.before.size_bytes));
  DW_RETURN_IF_ERROR(check_memory(pair.before.dtype, pair.after.data, pair.before.size_bytes));
  const Layout layout = array_layout(pair.before);
  return DevicePair{layout, pair.before.data, pair.after.data,
                    pair.before.size_bytes / layout.width, kind};
}

}  // namespace deltawire::cuda
