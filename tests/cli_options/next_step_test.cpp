// Every error tells what to do next.
#include "cli/next_step.h"

#include "base/next_step.h"
#include "test_files.h"

namespace deltawire::cli {
namespace {

TEST(NextStep, EveryCodeHasOne) {
  for (int code = int(Code::kInvalidArgument); code <= int(Code::kInternal); ++code) {
    for (const char* verb : {"", "pull", "apply", "import", "export"}) {
      EXPECT_NE(next_step(Status(Code(code), "x: went wrong"), verb), "") << code << " " << verb;
    }
  }
}

TEST(NextStep, MessagesThatSayItThemselvesHaveNone) {
  EXPECT_EQ(next_step(invalid_argument("OLD is required; see deltawire diff --help"), "diff"), "");
  EXPECT_EQ(next_step(unsupported("x: no such kind of store; write s3://B/P"), "pull"), "");
}

TEST(NextStep, NamesTheVerbThatFailed) {
  EXPECT_EQ(next_step(invalid_argument("the output's name is empty"), "apply"),
            "deltawire apply --help shows what it takes, with examples");
  EXPECT_EQ(next_step(invalid_argument("x"), ""),
            "deltawire --help shows what it takes, with examples");
}

TEST(NextStep, ADamagedFileIsNotADamagedChain) {
  const Status cut = corruption("a.safetensors: too short for a header length: 4 bytes");
  EXPECT_EQ(next_step(cut, "publish"), "copy the file again, or save it again");
  const Status part = corruption("store/parts/1/part-00000.safetensors: expected 9 bytes, got 1");
  EXPECT_EQ(next_step(part, "pull"), "deltawire fsck STORE lists all damage");
  // A replica's own file with the same defect repairs itself.
  const Status local = base_mismatch("replica/model.safetensors: header runs past the end");
  EXPECT_EQ(next_step(local, "pull"),
            "deltawire pull STORE LOCAL, without --no-repair, repairs a replica");
}

TEST(NextStep, AddsWhatToTypeToTheLibrarysAdvice) {
  EXPECT_EQ(next_step(not_found("store: holds no run"), "pull"),
            "check the path; if it is right, publish first: deltawire publish CKPT STORE");
  EXPECT_EQ(deltawire::next_step(not_found("store: holds no run")),
            "check the path; if it is right, publish first");
  // Each of its rows is one of the library's, found by a message with these words alone.
  for (const std::string_view words : typed_words()) {
    const NextStep* const step = find_next_step(io_error(std::string(words)));
    ASSERT_NE(step, nullptr) << words;
    EXPECT_EQ(step->words, words);
  }
}

TEST(NextStep, ImportAndExportAreNoReplicas) {
  const Status cut = corruption("deltas/weight_v000002: too short");
  EXPECT_EQ(next_step(cut, "import"),
            "of SRC: copy the version again; of STORE: deltawire fsck STORE lists it");
  EXPECT_EQ(next_step(not_found("deltas: version 2"), "import"),
            "deltawire inspect SRC lists their versions");
  EXPECT_EQ(next_step(base_mismatch("dst: holds another run"), "export"),
            "export to an empty place");
  EXPECT_EQ(next_step(out_of_memory("patching"), "import"),
            "repeat it with less: --memory, --threads");
}

}  // namespace
}  // namespace deltawire::cli
