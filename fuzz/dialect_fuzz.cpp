// Arbitrary bytes as other projects' files: opening and applying them gives tensors or a Status.
//
//   input = dialect: one byte | length of the first file: u16le | the first file | the second file
//
// The top bit of the first byte selects slime's frames instead: the rest is tried as a frame, and
// its halves as two arrays whose difference must round-trip.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "dialect/dialect.h"
#include "dialect/frames/frames.h"
#include "store/memory_store.h"

using namespace deltawire;

namespace {

struct Files {
  std::string_view dialect;
  const char* first;
  const char* second;
};

constexpr Files kFiles[] = {
    {"slime", "weight_v000002/model.safetensors.index.json",
     "weight_v000002/model-00000-of-00001.safetensors"},
    {"trl", "deltas/step_000002.safetensors", "anchors/step_000001.safetensors"},
};

// Tensors of a checkpoint that are patched: small ones, and one larger than a zstd block.
constexpr uint64_t kSizes[] = {4, 60, 600, 150'000};
constexpr uint64_t kLargest = uint64_t{1} << 20;

void expect(bool good) {
  if (!good) std::abort();
}

void apply(const ForeignVersion& version, size_t index, const TensorSpec& spec) {
  const auto size = tensor_size_bytes(spec.dtype, spec.shape);
  if (!size.ok() || *size > kLargest) return;
  std::vector<uint8_t> bytes(*size, 0x5a);
  const Status status = version.apply(index, spec, bytes, nullptr);
  const auto& checksum = version.info().tensors[index].checksum;
  if (status.ok() && checksum) expect(checksum_of(checksum->kind, bytes) == *checksum);
}

void apply_all(const ForeignVersion& version) {
  const auto& tensors = version.info().tensors;
  expect(std::ranges::is_sorted(tensors, {}, &ForeignTensor::name));
  for (size_t i = 0; i < std::min<size_t>(tensors.size(), 8); ++i) {
    if (tensors[i].dtype && tensors[i].shape) {
      apply(version, i, {tensors[i].name, *tensors[i].dtype, *tensors[i].shape});
    }
    for (const uint64_t size : kSizes) apply(version, i, {tensors[i].name, DType::kU8, {size}});
  }
}

void try_files(const Dialect& dialect, std::string_view first, std::string_view second) {
  const auto files = std::ranges::find(kFiles, dialect.name(), &Files::dialect);
  if (files == std::end(kFiles)) return;
  MemoryStore store;
  if (!first.empty()) (void)store.put(files->first, MemoryBody(first));
  if (!second.empty()) (void)store.put(files->second, MemoryBody(second));
  (void)dialect.recognises(store);
  const auto versions = dialect.versions(store);
  if (!versions.ok()) return;
  for (const uint64_t version : *versions) {
    if (const auto opened = dialect.open(store, version); opened.ok()) apply_all(**opened);
  }
}

void try_frames(Bytes bytes) {
  ZstdStream zstd;
  for (const uint64_t size : kSizes) {
    std::vector<uint8_t> data(size);
    (void)patch_xor_frame(bytes, data, &zstd, nullptr);
    (void)patch_overwrite_frame(bytes, data, &zstd, nullptr);
  }
  // One input in eight is repeated to reach several blocks and chunks, which is a thousand times
  // slower.
  const size_t half = bytes.size() / 2;
  const bool repeated = half >= 64 && bytes[0] % 8 == 0;
  std::vector<uint8_t> before, after;
  for (size_t copies = repeated ? 700'000 / half : 1; copies-- > 0;) {
    before.insert(before.end(), bytes.begin(), bytes.begin() + ptrdiff_t(half));
    after.insert(after.end(), bytes.begin() + ptrdiff_t(half), bytes.begin() + ptrdiff_t(2 * half));
  }
  for (const bool overwrite : {false, true}) {
    const auto made = (overwrite ? write_overwrite_frame : write_xor_frame)(
        before, after, ChecksumKind::kXxh3_128, nullptr);
    expect(made.ok());
    std::vector<uint8_t> data = before;
    expect((overwrite ? patch_overwrite_frame : patch_xor_frame)(made->frame, data, &zstd, nullptr)
               .ok());
    expect(data == after);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes input(data, size);
  if (input.size() < 3) return 0;
  if ((input[0] & 0x80) != 0) {
    try_frames(input.subspan(1));
    return 0;
  }
  const auto dialects = all_dialects();
  const size_t first = std::min<size_t>(load_le<uint16_t>(&input[1]), input.size() - 3);
  const auto text = std::string_view(reinterpret_cast<const char*>(data), size).substr(3);
  try_files(*dialects[input[0] % dialects.size()], text.substr(0, first), text.substr(first));
  return 0;
}
