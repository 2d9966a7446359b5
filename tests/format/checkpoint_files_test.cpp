#include "format/checkpoint_files.h"

#include "test_files.h"

namespace deltawire::testing {
namespace {

TEST(CheckpointFiles, NamesOfAnyLanguageAreTaken) {
  for (const std::string& name : std::vector<std::string>{
           "config.json", "chat template.jinja", "Über uns.md", "語彙.txt", "a", "v1", "currents",
           "v000000001", "v00000000012", "a&b=c?.txt", "-", "~", std::string(255, 'x')}) {
    EXPECT_TRUE(check_checkpoint_file_name(name).ok()) << name;
    EXPECT_TRUE(check_side_files({{name, 1}}).ok()) << name;
  }
}

TEST(CheckpointFiles, EveryDefectOfANameHasItsMessage) {
  for (const auto& [name, phrase] : std::vector<std::pair<std::string, const char*>>{
           {"", "has a name"},
           {std::string(256, 'x'), "256 bytes, at most 255"},
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
           {"current", "replicas use this name"},
           {"Current", "replicas use this name"},
           {"current.new", "replicas use this name"},
           {"v0000000001", "replicas use this name"},
           {"V9999999999", "replicas use this name"}}) {
    EXPECT_FAILS(check_checkpoint_file_name(name), Code::kCorruption, phrase) << name;
  }
}

TEST(CheckpointFiles, SideFilesAreNoWeightsAndNotTwice) {
  for (const char* name : {"model.safetensors", "x.SafeTensors", "model.safetensors.index.json"}) {
    EXPECT_FAILS(check_side_files({{name, 1}}), Code::kCorruption, name, "of weights");
  }
  EXPECT_FAILS(check_side_files({{"a", 1}, {"a", 1}}), Code::kCorruption, "\"a\"");
  EXPECT_FAILS(check_side_files({{"README.md", 1}, {"Readme.md", 1}}), Code::kCorruption,
               "Readme.md", "by case alone");
}

TEST(CheckpointFiles, SideFilesHaveALimit) {
  EXPECT_TRUE(check_side_files({{"a", kMaxSideBytes - 1}, {"b", 1}}).ok());
  EXPECT_FAILS(check_side_files({{"a", kMaxSideBytes - 1}, {"b", 2}}), Code::kCorruption,
               "file \"a\"", "1073741823 bytes", "1073741824 together", "they have 1073741825");
  EXPECT_FAILS(check_side_files({{"a", UINT64_MAX}, {"b", UINT64_MAX}}), Code::kCorruption,
               "together");
  std::vector<NamedSize> many;
  for (size_t i = 0; i < kMaxSideFiles; ++i) many.push_back({std::to_string(i), 0});
  EXPECT_TRUE(check_side_files(many).ok());
  many.push_back({"one more", 0});
  EXPECT_FAILS(check_side_files(many), Code::kCorruption, "10000", "10001");
}

TEST(CheckpointFiles, WeightsHaveNamesOfWeights) {
  EXPECT_TRUE(check_weights_files(
                  {{"model-00001-of-00002.safetensors", 1}, {"model.safetensors.index.json", 1}})
                  .ok());
  EXPECT_FAILS(check_weights_files({{"w.bin", 1}}), Code::kCorruption, "w.bin");
  EXPECT_FAILS(check_weights_files({{"a.safetensors", 1}, {"a.safetensors", 1}}), Code::kCorruption,
               "a.safetensors");
}

}  // namespace
}  // namespace deltawire::testing
