// Inputs where slime's own reader reports success or leaves a broken checkpoint.

#include "bridge/bridge_model.h"

namespace deltawire::testing {
namespace {

fs::path a_part(const fs::path& version) {
  for (const auto& item : fs::directory_iterator(version)) {
    if (item.path().extension() == ".safetensors") return item.path();
  }
  return {};
}

using ImportRefuses = BridgeTest;

TEST_F(ImportRefuses, WrongBaseBeforeCommitting) {
  folder.write_all(slime());
  write_checkpoint(folder.base(), folder.model(2));
  EXPECT_FAILS(import_all(folder, folder.import_options()), kBaseMismatch,
               "the checkpoint that the run began with?", "Nothing was committed");
  EXPECT_FALSE(head_of(folder));
  write_checkpoint(folder.base(), folder.model(0));  // and goes on with the right one
  EXPECT_TRUE(import_all(folder, folder.import_options()).ok());
}

// TRL's files name no base and have no digests.
TEST_F(ImportRefuses, BaseThatAlreadyHasTheFirstVersion) {
  folder.write_all(*find_dialect("trl"), 2);
  write_checkpoint(folder.base(), folder.model(1));
  EXPECT_FAILS(import_all(folder, folder.import_options("trl")), kBaseMismatch,
               "version 1 changes nothing");
  EXPECT_EQ(head_of(folder), std::nullopt);
}

TEST_F(ImportRefuses, MissingBase) {
  folder.write_all(slime());
  ImportOptions options = folder.import_options();
  options.base.clear();
  EXPECT_FAILS(import_all(folder, options), kInvalidArgument, "no version is whole",
               "needs the checkpoint");
}

TEST_F(ImportRefuses, MissingTruncatedOrMisorderedVersions) {
  struct Case {
    std::function<void(const fs::path& source)> spoil;
    Code code;
    std::vector<const char*> phrases;
    std::optional<uint64_t> head;
  };
  const Case cases[] = {
      {[](const fs::path& source) { fs::remove_all(source / "weight_v000002"); },
       Code::kNotFound,
       {"version 2 is missing", "version 3 is there"},
       1},
      {[](const fs::path& source) {
         fs::remove(source / "weight_v000002/model.safetensors.index.json");
       },
       Code::kNotFound,
       {"version 2 is missing or not complete"},
       1},
      {[](const fs::path& source) { fs::remove(a_part(source / "weight_v000003")); },
       Code::kCorruption,
       {},
       2},
      {[](const fs::path& source) {
         const fs::path part = a_part(source / "weight_v000001");
         fs::resize_file(part, fs::file_size(part) - 9);
       },
       Code::kCorruption,
       {},
       {}},
      {[](const fs::path& source) {  // version 2 says that it is based on version 0
         const fs::path index = source / "weight_v000002/model.safetensors.index.json";
         std::string text = read_file(index);
         text.replace(text.find("\"000001\""), 8, "\"000000\"");
         std::ofstream(index) << text;
       },
       Code::kBaseMismatch,
       {"version 2 is based on version 0", "at version 1"},
       1},
  };
  for (const Case& one : cases) {
    const BridgeFolder own;
    own.write_all(slime());
    one.spoil(own.path("source"));
    const auto imported = import_all(own, own.import_options());
    EXPECT_TRUE(is_failure(imported, one.code));
    for (const char* phrase : one.phrases) EXPECT_TRUE(is_failure(imported, one.code, phrase));
    EXPECT_EQ(head_of(own), one.head);
    if (one.head) expect_version(own, *one.head, own.model(*one.head));
  }
}

TEST_F(ImportRefuses, DamagedVersionsWithoutCommitting) {
  folder.write_all(slime());
  const fs::path part = a_part(folder.path("source/weight_v000003"));
  const std::string sound = read_file(part);
  std::string damaged = sound;
  damaged[damaged.size() - 20] ^= 1;
  std::ofstream(part, std::ios::binary) << damaged;
  EXPECT_FAILS(import_all(folder, folder.import_options()), kCorruption,
               "nothing of it was committed");
  EXPECT_EQ(head_of(folder), 2U);
  expect_version(folder, 2, folder.model(2));
  std::ofstream(part, std::ios::binary) << sound;  // and takes it when it is whole
  EXPECT_EQ(import_all(folder, folder.import_options()).value(), 1U);
  expect_version(folder, 3, folder.model(3));
}

TEST_F(ImportRefuses, FilesModifiedWhileRead) {
  folder.write_all(slime(), 2);
  ImportOptions options = folder.import_options();
  options.range.to = 1;
  ASSERT_TRUE(import_all(folder, options).ok());
  options.range.to.reset();
  bool touched = false;
  options.publish.progress = [&](uint64_t, uint64_t) {
    if (!std::exchange(touched, true))
      std::ofstream(a_part(folder.path("source/weight_v000002")), std::ios::app) << "x";
    return true;
  };
  EXPECT_FALSE(import_all(folder, options).ok());
  EXPECT_TRUE(touched);
  EXPECT_EQ(head_of(folder), 1U);
}

TEST_F(ImportRefuses, TiedHeadMissingFromTheCheckpoint) {
  ASSERT_TRUE(folder.write(slime(), 1, folder.model(0), folder.model(3)).ok());
  Model untied = folder.model(0);
  untied.erase(untied.begin());
  write_checkpoint(folder.base(), untied);
  EXPECT_FAILS(import_all(folder, folder.import_options()), kBaseMismatch, "\"head.weight\"",
               "tied", "a base that has it");
}

TEST_F(ImportRefuses, DtypeMismatch) {
  ASSERT_TRUE(folder.write(*find_dialect("trl"), 1, folder.model(0), folder.model(3)).ok());
  Model other = folder.model(0);
  other[0].dtype = DType::kF16;
  write_checkpoint(folder.base(), other);
  EXPECT_FAILS(import_all(folder, folder.import_options("trl")), kBaseMismatch, "\"head.weight\"",
               "BF16", "F16");
}

TEST_F(ImportRefuses, DifferentSource) {
  folder.write_all(slime(), 1);
  ASSERT_TRUE(import_all(folder, folder.import_options()).ok());
  folder.write_all(slime(), 2, {}, "elsewhere");
  ImportOptions options = folder.import_options();
  EXPECT_FAILS(import_all(folder, options, "elsewhere"), kBaseMismatch, "holds an import of slime",
               "a source that has moved");
  options.source_moved = true;
  EXPECT_EQ(import_all(folder, options, "elsewhere").value(), 1U);
  expect_version(folder, 2, folder.model(2));
}

TEST_F(ImportRefuses, ChainPublishedByATrainer) {
  folder.write_all(slime());
  PublishOptions publish{.snapshot = SnapshotInFolder{folder.path("snapshot")}};
  must(Publisher::open(folder.store("chain"), publish)->publish_checkpoint(folder.base()));
  EXPECT_FAILS(import_all(folder, folder.import_options()), kBaseMismatch,
               "was published, not imported");
}

// Stale folders of an earlier run: slime reports success.
TEST_F(ImportRefuses, RestartedRunInTheSamePlace) {
  for (const std::string dialect : {"slime", "trl"}) {
    const BridgeFolder folder;
    folder.write_all(*find_dialect(dialect), 2);
    ASSERT_TRUE(import_all(folder, folder.import_options(dialect)).ok());
    fs::remove_all(folder.path("source"));
    const Model restarted = next_model(next_model(folder.model(0), 17), 19);
    ASSERT_TRUE(folder.write(*find_dialect(dialect), 1, folder.model(0), restarted).ok());
    EXPECT_FAILS(import_all(folder, folder.import_options(dialect)), kBaseMismatch,
                 "ends with version 1", "another run");
    ASSERT_TRUE(folder.write(*find_dialect(dialect), 2, restarted, folder.model(3)).ok());
    ASSERT_TRUE(folder.write(*find_dialect(dialect), 3, folder.model(3), folder.model(1)).ok());
    EXPECT_FAILS(import_all(folder, folder.import_options(dialect)), kBaseMismatch,
                 "version 2 is not the one that was imported");
    EXPECT_EQ(head_of(folder), 2U);
  }
}

// The same elements change to other values: sizes do not tell the runs apart.
TEST_F(ImportRefuses, RestartedRunWithFilesOfTheSameSizes) {
  for (const std::string name : {"slime", "trl"}) {
    const Dialect& dialect = *find_dialect(name);
    const BridgeFolder folder;
    folder.write_all(dialect, 2);
    ASSERT_TRUE(import_all(folder, folder.import_options(name)).ok());
    Model restarted = folder.model(2);
    for (size_t i = 0; i < restarted.size(); ++i) {
      auto& bytes = restarted[i].bytes;
      const auto& old = folder.model(1)[i].bytes;
      for (size_t at = 0; at < bytes.size(); ++at) {
        if (bytes[at] != old[at]) bytes[at] ^= uint8_t((bytes[at] ^ 1) == old[at] ? 2 : 1);
      }
    }
    fs::remove_all(folder.path("source"));
    folder.write_all(dialect, 1);
    ASSERT_TRUE(folder.write(dialect, 2, folder.model(1), restarted).ok());
    ASSERT_TRUE(folder.write(dialect, 3, restarted, next_model(restarted, 3)).ok());
    EXPECT_FAILS(import_all(folder, folder.import_options(name)), kBaseMismatch, "version 2",
                 "another run")
        << name;
    EXPECT_EQ(head_of(folder), 2U);
  }
}

TEST_F(ImportRefuses, UnknownDialectsAndEmptyRanges) {
  ImportOptions options = folder.import_options("slimy");
  EXPECT_FAILS(import_all(folder, options), kInvalidArgument, "\"slimy\"", "trl");
  options = folder.import_options();
  options.range = {3, 2};
  EXPECT_FAILS(import_all(folder, options), kInvalidArgument, "from version 3 to version 2");
  options = folder.import_options();
  options.publish.snapshot = SnapshotInMemory{};
  EXPECT_FAILS(import_all(folder, options), kInvalidArgument, "work folder");
}

}  // namespace
}  // namespace deltawire::testing
