// Files of every released format version, valid and invalid, kept for ever: the valid ones must
// still apply and be produced by today's encoder byte for byte; the invalid ones must still give
// their named error.
//
// DELTAWIRE_BLESS=1 build/tests/golden_tests rewrites the files of the current version. Release
// 0.2.0 froze those of v1: golden.frozen compares them with v1/SHA256SUMS.
#include "checkpoints.h"
#include "codec/codec.h"
#include "codec/leb128.h"
#include "delta/delta_reader.h"
#include "deltawire/delta.h"
#include "format/delta_part.h"
#include "format/layout.h"

namespace deltawire::testing {
namespace {

const fs::path kFolder = fs::path(DELTAWIRE_TESTS_DIR) / "golden" / "v1";

bool blessing() { return std::getenv("DELTAWIRE_BLESS") != nullptr; }

// A generator of our own: std distributions differ between standard libraries.
struct Random {
  uint64_t state;
  uint64_t operator()() {
    uint64_t z = state += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
};

TestTensor weights(std::string name, DType dtype, Shape shape, uint64_t seed) {
  Random random{seed};
  TestTensor tensor{std::move(name), dtype, shape,
                    std::vector<uint8_t>(tensor_size_bytes(dtype, shape).value())};
  for (uint8_t& byte : tensor.bytes) byte = uint8_t(random());
  if (dtype == DType::kBF16) {
    for (size_t i = 0; i < tensor.bytes.size(); i += 2) {
      const int exponent = 121 - int(__builtin_ctzll(random() | 1ULL << 12));
      store_le(&tensor.bytes[i], uint16_t(exponent << 7 | (random() & 0x807f)));
    }
  }
  return tensor;
}

void step(TestTensor* tensor, uint64_t one_in, uint64_t seed) {
  Random random{seed};
  const size_t width = dtype_bits(tensor->dtype) / 8;
  for (size_t i = 0; i < tensor->bytes.size(); i += width) {
    if (random() % one_in != 0) continue;
    const uint64_t kind = random() % 16;
    uint64_t value = 0;
    std::memcpy(&value, &tensor->bytes[i], width);
    value = kind == 0 ? random() : kind == 1 ? value + 3 : kind % 2 != 0 ? value + 1 : value - 1;
    std::memcpy(&tensor->bytes[i], &value, width);
  }
}

std::vector<TestTensor> state(int version) {
  std::vector<TestTensor> tensors = {
      weights("bytes", DType::kU8, {130}, 1), weights("half", DType::kF16, {9, 15}, 2),
      weights("layer.weight", DType::kBF16, {60, 50}, 3), weights("single", DType::kF32, {70}, 4),
      weights("wide", DType::kI64, {40}, 5)};
  for (size_t i = 0; version == 1 && i < tensors.size(); ++i) step(&tensors[i], i == 2 ? 30 : 7, i);
  return tensors;
}

// Two matrices, eight tiles of 128 columns each.
std::vector<TestTensor> tiled_state(int version) {
  std::vector<TestTensor> tensors = {weights("experts", DType::kBF16, {2, 300, 1024}, 6)};
  if (version == 1) step(&tensors[0], 1500, 7);
  return tensors;
}

class GoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, StillAppliesAndIsStillProduced) {
  const fs::path golden = kFolder / (GetParam() + ".safetensors");
  TempFolder folder;
  const fs::path a = folder.path() / "a.safetensors", b = folder.path() / "b.safetensors",
                 c = folder.path() / "c.safetensors", made = folder.path() / "d.safetensors";
  const bool tiled = GetParam().ends_with("-tiles");
  write_checkpoint(a, tiled ? tiled_state(0) : state(0));
  write_checkpoint(b, tiled ? tiled_state(1) : state(1));
  must(diff_checkpoints(a, b, made, {.codec = GetParam().substr(0, GetParam().find('-'))}));
  if (blessing()) {
    fs::create_directories(kFolder);
    fs::copy_file(made, golden, fs::copy_options::overwrite_existing);
  }
  must(apply_delta(golden, a, c, {}));
  EXPECT_EQ(read_file(c), read_file(b));
  EXPECT_EQ(read_file(made), read_file(golden));
}

INSTANTIATE_TEST_SUITE_P(EveryCodec, GoldenTest,
                         ::testing::Values("raw", "gaps", "tight", "exponents", "adaptive", "auto",
                                           "tight-tiles"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

// ---- bad files: each defect by name

struct Bad {
  const char* name;
  Code code;
  const char* phrase;
  std::function<std::string()> make;  // the file, when blessing
};

// Forges one payload or record of the golden `gaps` and `tight` deltas and recomputes the
// checksums.
std::string forged(
    const std::string& codec,
    const std::function<void(std::vector<EntryRecord>&, std::vector<std::string>&)>& forge) {
  const std::string good = read_file(kFolder / (codec + ".safetensors"));
  auto part = parse_part(as_bytes(good));
  std::vector<EntryRecord> records;
  std::vector<std::string> payloads;
  for (const PayloadView& view : part->entries) {
    records.push_back({view.entry, 0, {}});
    payloads.emplace_back(view.payload.begin(), view.payload.end());
  }
  forge(records, payloads);
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].payload_bytes = payloads[i].size();
    records[i].payload_digest = digest_of(DigestKind::kXxh3_128, as_bytes(payloads[i]));
  }
  std::string file = serialise_part_header(part->info, records).value();
  for (const std::string& payload : payloads) file += payload;
  return file;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

std::vector<Bad> bad_files() {
  using Records = std::vector<EntryRecord>&;
  using Payloads = std::vector<std::string>&;
  const auto good = [](const std::string& codec) {
    return read_file(kFolder / (codec + ".safetensors"));
  };
  return {
      {"truncated", Code::kCorruption, "past the data",
       [=] { return good("tight").substr(0, good("tight").size() - 5); }},
      {"flipped-bit", Code::kCorruption, "checksum of the part",
       [=] {
         std::string file = good("tight");
         file[file.size() - 9] ^= 0x10;
         return file;
       }},
      {"future-format", Code::kUnsupported, "delta/9",
       [=] { return replaced(good("gaps"), "delta/1", "delta/9"); }},
      {"unknown-digest", Code::kUnsupported, "digest \"sum129\"",
       [=] { return replaced(good("gaps"), "sum128", "sum129"); }},
      {"unknown-codec", Code::kCorruption, "checksum",
       [=] { return replaced(good("gaps"), "gaps I64", "gaqs I64"); }},
      {"too-many-changes", Code::kCorruption, "expected at most",
       [=] {
         return forged("gaps", [](Records r, Payloads) { r[0].entry.num_changed = 1000000; });
       }},
      {"gap-out-of-range", Code::kCorruption, "gap of change 0",
       [=] {
         return forged("gaps", [](Records, Payloads p) { p[0][2] = '\xff', p[0][3] = '\xff'; });
       }},
      {"forged-count", Code::kCorruption, "expected",
       [=] { return forged("gaps", [](Records, Payloads p) { p[0][1] = '\x7f'; }); }},
      {"trailing-bytes", Code::kCorruption, "expected",
       [=] { return forged("gaps", [](Records, Payloads p) { p[0] += "x"; }); }},
      {"tight-block-size", Code::kCorruption, "block size",
       [=] { return forged("tight", [](Records, Payloads p) { p[2][0] = 0x7f; }); }},
      {"tight-tiles-of-a-vector", Code::kCorruption, "not a matrix",
       [=] {
         return forged("tight", [](Records, Payloads p) { p[3][0] = char((p[3][0] & 0x80) | 86); });
       }},
      {"tight-state", Code::kCorruption, "coder state",
       [=] {
         return forged("tight", [](Records, Payloads p) {
           std::memset(p[2].data() + p[2].size() - 8, 0, 8);
         });
       }},
      {"tight-directory", Code::kCorruption, "directory",
       [=] { return forged("tight", [](Records, Payloads p) { p[2] += "zz"; }); }},
      {"wrong-result", Code::kCorruption, "after the patch",
       [=] { return forged("raw", [](Records, Payloads p) { p[1][5] ^= 1; }); }},
      {"raw-size", Code::kCorruption, "raw payload",
       [=] { return forged("raw", [](Records, Payloads p) { p[0].pop_back(); }); }},
      {"same-tensor-twice", Code::kCorruption, "covers too",
       [=] {
         return forged("gaps", [](Records r, Payloads p) { r.push_back(r[0]), p.push_back(p[0]); });
       }},
  };
}

TEST(GoldenBadFiles, StillGiveTheirNamedError) {
  TempFolder folder;
  const fs::path a = folder.path() / "a.safetensors", c = folder.path() / "c.safetensors";
  write_checkpoint(a, state(0));
  for (const Bad& bad : bad_files()) {
    const std::string name = bad.name;
    const fs::path path = kFolder / "bad" / (name + ".safetensors");
    if (blessing()) {
      fs::create_directories(path.parent_path());
      std::ofstream(path, std::ios::binary) << bad.make();
    }
    const auto result = apply_delta(path, a, c, {});
    EXPECT_TRUE(is_failure(result.status(), bad.code, name + ".safetensors", bad.phrase)) << name;
    EXPECT_FALSE(fs::exists(c)) << name;
    EXPECT_EQ(folder.num_files(), 1) << name;
  }
}

}  // namespace
}  // namespace deltawire::testing
