// Arbitrary bytes: parsing must not crash, and accepted files must round-trip.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/safetensors.h"
#include "tensor/sharded_index.h"

namespace {

using namespace deltawire;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_file(Bytes input) {
  const auto first = parse_safetensors(input);
  if (!first.ok()) return;
  std::vector<TensorSpec> specs;
  for (const TensorView& tensor : first->tensors) {
    require(tensor.bytes.empty() ||
            (tensor.bytes.data() >= input.data() + first->data_offset &&
             tensor.bytes.data() + tensor.bytes.size() <= input.data() + input.size()));
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  const auto header = serialise_safetensors_header(specs, first->metadata);
  require(header.ok());
  std::string file = *header;
  for (const TensorView& tensor : first->tensors) {
    file.append(tensor.bytes.begin(), tensor.bytes.end());
  }
  const Bytes bytes(reinterpret_cast<const uint8_t*>(file.data()), file.size());
  const auto second = parse_safetensors(bytes);
  require(second.ok() && second->metadata == first->metadata);
  require(second->tensors.size() == specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorView &a = first->tensors[i], &b = second->tensors[i];
    require(TensorSpec{b.name, b.dtype, b.shape} == specs[i]);
    require(std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end()));
  }
}

void check_index(std::string_view json) {
  const auto first = parse_index(json);
  if (!first.ok()) return;
  const auto text = serialise_index(*first, 0);
  require(text.ok());
  const auto second = parse_index(*text);
  require(second.ok() && *second == *first);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check_file({data, size});
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_index(text);
  // A wrong length field would reject most mutations of the header; here it is always right.
  for (const uint64_t data_bytes : {uint64_t{0}, uint64_t{8}}) {
    const auto header = parse_safetensors_header(text, data_bytes);
    require(header.ok() || header.status().code() == Code::kCorruption ||
            header.status().code() == Code::kUnsupported);
  }
  return 0;
}
