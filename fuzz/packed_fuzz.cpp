// Arbitrary bytes as a packed file: unpacking at once and as a stream gives the same plain file, or
// both fail without a crash.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "format/packed_file.h"
#include "replica/unpack_stream.h"

namespace {

using namespace deltawire;

void require(bool condition) {
  if (!condition) std::abort();
}

bool unpack_at_once(Bytes input, std::vector<uint8_t>* plain) {
  const auto file = parse_packed(input);
  if (!file.ok()) return false;
  require(file->plain_bytes / 2 <= input.size());
  plain->resize(size_t(file->plain_bytes));
  return unpack(*file, input, *plain, nullptr).ok();
}

bool unpack_stream(Bytes input, const std::filesystem::path& to) {
  UnpackStream stream(to, input.size());
  const size_t piece = 1 + input.size() / 3;
  for (size_t at = 0; at < input.size(); at += piece) {
    if (!stream.take(input.subspan(at, std::min(piece, input.size() - at))).ok()) return false;
  }
  return stream.finish().ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes input(data, size);
  static const std::filesystem::path to =
      std::filesystem::temp_directory_path() / ("packed_fuzz." + std::to_string(::getpid()));
  std::vector<uint8_t> plain;
  const bool good = unpack_at_once(input, &plain);
  require(unpack_stream(input, to) == good);
  if (!good) return 0;
  std::ifstream file(to, std::ios::binary);
  const std::string got{std::istreambuf_iterator<char>(file), {}};
  require(std::equal(got.begin(), got.end(), plain.begin(), plain.end(),
                     [](char a, uint8_t b) { return uint8_t(a) == b; }));
  return 0;
}
