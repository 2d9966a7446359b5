// Headers of packed files: valid and invalid ones.
#include "format/packed_file.h"

#include "codec/choose.h"
#include "format/checkpoint_files.h"
#include "format/layout.h"
#include "tensor/safetensors.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

// A plain file with three tensors, and its packed form.
struct PackedCase {
  std::string plain, packed;

  PackedCase() {
    const std::vector<TensorSpec> specs = {{"weights", DType::kBF16, {30, 100}},
                                           {"#odd", DType::kU8, {5}},
                                           {"none", DType::kF32, {0}}};
    PackedFile file;
    file.plain_header = serialise_safetensors_header(specs, {{"format", "pt"}}).value();
    std::string data(6005, 'x');
    for (size_t i = 0; i < 3000; ++i) data[2 * i] = char(i * 7), data[2 * i + 1] = '\x3c';
    plain = file.plain_header + data;
    file.plain_bytes = plain.size();
    std::string payloads;
    const size_t sizes[] = {6000, 5, 0};
    size_t at = 0;
    for (size_t i = 0; i < 3; ++i) {
      const Bytes bytes(reinterpret_cast<const uint8_t*>(data.data()) + at, sizes[i]);
      at += sizes[i];
      const auto choice =
          encode_whole_array(layout_of(specs[i].dtype), bytes, false, nullptr).value();
      file.tensors.push_back({choice.codec, specs[i].dtype, 0, choice.encoded.payload.size()});
      payloads += as_string(choice.encoded.payload);
    }
    packed = serialise_packed_front({"weights", "#odd", "none"}, &file).value() + payloads;
  }
};

TEST(PackedFile, RestoresThePlainFile) {
  const PackedCase made;
  EXPECT_LT(made.packed.size(), made.plain.size());
  EXPECT_TRUE(parse_safetensors(as_bytes(made.packed)).ok());  // any tool lists it
  const auto file = must(parse_packed(as_bytes(made.packed)));
  EXPECT_EQ(file.tensors[0].codec, CodecId::kExponents);
  EXPECT_EQ(file.tensors[1].codec, CodecId::kRaw);
  std::vector<uint8_t> plain(file.plain_bytes);
  ASSERT_TRUE(unpack(file, as_bytes(made.packed), plain, nullptr).ok());
  EXPECT_EQ(as_string(plain), made.plain);
}

TEST(PackedFile, ParsesTheFrontAlone) {
  const PackedCase made;
  const size_t header = 8 + size_t(load_le<uint64_t>(made.packed.data()));
  const auto front = must(packed_front_bytes(made.packed.substr(0, header), made.packed.size()));
  EXPECT_TRUE(parse_packed_front(made.packed.substr(0, front), made.packed.size()).ok());
  EXPECT_FALSE(parse_packed_front(made.packed.substr(0, front - 1), made.packed.size()).ok());
}

TEST(PackedFile, SurvivesDamageOfTheFront) {
  const PackedCase made;
  const auto file = parse_packed(as_bytes(made.packed));
  const size_t front = size_t(file->tensors[0].begin);
  for (size_t i = 0; i < front; ++i) {
    for (const int bit : {0, 3, 7}) {
      std::string text = made.packed;
      text[i] = char(text[i] ^ 1 << bit);
      const auto parsed = parse_packed(as_bytes(text));
      if (!parsed.ok()) continue;
      EXPECT_LE(parsed->plain_bytes, 2 * text.size() + 1);
      std::vector<uint8_t> plain(parsed->plain_bytes);
      (void)unpack(*parsed, as_bytes(text), plain, nullptr);
    }
  }
  for (size_t size = 0; size < made.packed.size(); size += 37) {
    EXPECT_FALSE(parse_packed(as_bytes(made.packed.substr(0, size))).ok()) << size;
  }
}

// Edits header texts without changing their length.
TEST(PackedFile, RefusesInconsistentRecords) {
  const PackedCase made;
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = made.packed;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return parse_packed(as_bytes(text)).status();
  };
  EXPECT_EQ(with("whole/1 ", "whole/2 ").code(), Code::kUnsupported);
  EXPECT_EQ(with("exponents", "exponentz").code(), Code::kUnsupported);
  EXPECT_EQ(with(";raw;", ";rax;").code(), Code::kUnsupported);
  EXPECT_EQ(with("exponents;raw", "raw;exponents").code(), Code::kCorruption);
  EXPECT_EQ(with("#header", "#heeder").code(), Code::kCorruption);
  EXPECT_EQ(with("\"deltawire\"", "\"deltawira\"").code(), Code::kCorruption);
  EXPECT_EQ(with("\"BF16\"", "\"BF61\"").code(), Code::kUnsupported);
  EXPECT_EQ(with("[30,100]", "[31,100]").code(), Code::kCorruption);
}

TEST(CheckpointFiles, AcceptsNamesInAnyLanguage) {
  for (const std::string& name : std::vector<std::string>{
           "config.json", "chat template.jinja", "Über uns.md", "語彙.txt", "a", "v1", "currents",
           "v000000001", "v00000000012", "a&b=c?.txt", "-", "~", std::string(255, 'x')}) {
    EXPECT_TRUE(check_checkpoint_file_name(name).ok()) << name;
    EXPECT_TRUE(check_side_files({{name, 1}}).ok()) << name;
  }
}

TEST(CheckpointFiles, EveryInvalidNameHasItsMessage) {
  for (const auto& [name, phrase] : std::vector<std::pair<std::string, const char*>>{
           {"", "the name is empty"},
           {std::string(256, 'x'), "256 bytes; at most 255"},
           {"a\xff", "not UTF-8"},
           {"a\xc3", "not UTF-8"},
           {"a/b", "a slash"},
           {"..\\b", "a backslash"},
           {"a\nb", "a control character"},
           {std::string("a\0b", 3), "a control character"},
           {"a\x7f", "a control character"},
           {".hidden", "begins with a dot"},
           {".", "begins with a dot"},
           {"..", "begins with a dot"},
           {".deltawire", "begins with a dot"},
           {"current", "reserved for replicas"},
           {"Current", "reserved for replicas"},
           {"current.new", "reserved for replicas"},
           {"v0000000001", "reserved for replicas"},
           {"V9999999999", "reserved for replicas"}}) {
    EXPECT_FAILS(check_checkpoint_file_name(name), kCorruption, phrase) << name;
  }
}

TEST(CheckpointFiles, RejectsWeightsAndDuplicatesAsSideFiles) {
  for (const char* name : {"model.safetensors", "x.SafeTensors", "model.safetensors.index.json"}) {
    EXPECT_FAILS(check_side_files({{name, 1}}), kCorruption, name, "reserved for weights");
  }
  EXPECT_FAILS(check_side_files({{"a", 1}, {"a", 1}}), kCorruption, "\"a\"");
  EXPECT_FAILS(check_side_files({{"README.md", 1}, {"Readme.md", 1}}), kCorruption, "Readme.md",
               "by case alone");
}

TEST(CheckpointFiles, LimitsSizeAndNumberOfSideFiles) {
  EXPECT_TRUE(check_side_files({{"a", kMaxSideBytes - 1}, {"b", 1}}).ok());
  EXPECT_FAILS(check_side_files({{"a", kMaxSideBytes - 1}, {"b", 2}}), kCorruption, "file \"a\"",
               "1073741823 bytes", "1073741824 together", "they have 1073741825");
  EXPECT_FAILS(check_side_files({{"a", UINT64_MAX}, {"b", UINT64_MAX}}), kCorruption, "together");
  std::vector<NamedSize> many;
  for (size_t i = 0; i < kMaxSideFiles; ++i) many.push_back({std::to_string(i), 0});
  EXPECT_TRUE(check_side_files(many).ok());
  many.push_back({"one more", 0});
  EXPECT_FAILS(check_side_files(many), kCorruption, "10000", "10001");
}

TEST(CheckpointFiles, WeightsNeedSafetensorsNames) {
  EXPECT_TRUE(check_weights_files(
                  {{"model-00001-of-00002.safetensors", 1}, {"model.safetensors.index.json", 1}})
                  .ok());
  EXPECT_FAILS(check_weights_files({{"w.bin", 1}}), kCorruption, "w.bin");
  EXPECT_FAILS(check_weights_files({{"a.safetensors", 1}, {"a.safetensors", 1}}), kCorruption,
               "a.safetensors");
}

}  // namespace
}  // namespace deltawire::testing
