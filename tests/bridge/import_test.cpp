#include <limits>

#include "bridge/bridge_model.h"
#include "deltawire/maintain.h"

namespace deltawire::testing {
namespace {

struct Spoken {
  std::string dialect, encoding, checksum;
};

class ImportDialect : public ::testing::TestWithParam<Spoken> {};

TEST_P(ImportDialect, EveryVersionIsTheirsExactly) {
  const BridgeFolder folder;
  ForeignOptions options{.encoding = GetParam().encoding, .checksum = GetParam().checksum};
  folder.write_all(*find_dialect(GetParam().dialect), 3, options);
  const auto count = must(import_all(folder, folder.import_options(GetParam().dialect)));
  EXPECT_EQ(count, 4U);  // with the base
  for (uint64_t version = 0; version <= 3; ++version) {
    expect_version(folder, version, folder.model(version));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ImportDialect,
    ::testing::Values(Spoken{"slime", "xor", "xxh3-128"}, Spoken{"slime", "xor", "adler32"},
                      Spoken{"slime", "overwrite", "xxh3-128"}, Spoken{"slime-gen1", "indices", ""},
                      Spoken{"slime-gen1", "deltas", ""}, Spoken{"slime-gen1", "deltas_zstd", ""}));

using Import = BridgeTest;

TEST_F(Import, EachManifestSaysWhereTheVersionCameFrom) {
  folder.write_all(slime(), 1);
  ASSERT_TRUE(import_all(folder, folder.import_options()).ok());
  const Chain chain = Chain::open(folder.store("chain")).value();
  for (const uint64_t version : {0, 1}) {
    EXPECT_EQ(chain.version(version)->manifest.origin,
              "slime " + fs::weakly_canonical(folder.path("source")).string());
  }
}

TEST_F(Import, AVersionWithoutChangesKeepsTheNumbers) {
  ASSERT_TRUE(folder.write(slime(), 1, folder.model(0), folder.model(1)).ok());
  ASSERT_TRUE(folder.write(slime(), 2, folder.model(1), folder.model(1)).ok());
  ASSERT_TRUE(folder.write(slime(), 3, folder.model(1), folder.model(3)).ok());
  must(import_all(folder, folder.import_options()));
  expect_version(folder, 2, folder.model(1));
  expect_version(folder, 3, folder.model(3));
}

TEST_F(Import, AWholeVersionNeedsNoBaseAndKeepsItsNumber) {
  ASSERT_TRUE(folder.write(slime(), 7, {}, folder.model(1), {}, true).ok());
  ASSERT_TRUE(folder.write(slime(), 8, folder.model(1), folder.model(2)).ok());
  ImportOptions options = folder.import_options();
  options.base.clear();
  must(import_all(folder, options));
  const Chain chain = Chain::open(folder.store("chain")).value();
  EXPECT_EQ(chain.versions().value(), (std::vector<uint64_t>{7, 8}));
  expect_version(folder, 7, folder.model(1));
  expect_version(folder, 8, folder.model(2));
  EXPECT_TRUE(must(fsck_chain(chain)).problems.empty());
  EXPECT_TRUE(chain.collect_garbage({}).ok());
  expect_version(folder, 8, folder.model(2));
}

TEST_F(Import, AWholeVersionInBetweenIsAVersionLikeAnyOther) {
  ASSERT_TRUE(folder.write(slime(), 1, folder.model(0), folder.model(1)).ok());
  ASSERT_TRUE(folder.write(slime(), 2, {}, folder.model(2), {}, true).ok());
  ASSERT_TRUE(folder.write(slime(), 3, folder.model(2), folder.model(3)).ok());
  ASSERT_TRUE(import_all(folder, folder.import_options()).ok());
  expect_version(folder, 2, folder.model(2));
  expect_version(folder, 3, folder.model(3));
}

TEST_F(Import, BeginsInTheMiddleWithTheCheckpointBefore) {
  folder.write_all(slime());
  fs::remove_all(folder.path("source/weight_v000001"));
  ImportOptions options = folder.import_options();
  EXPECT_FAILS(import_all(folder, options), kNotFound, "import from version 2");
  write_checkpoint(folder.base(), folder.model(1));
  options.range.from = 2;
  must(import_all(folder, options));
  expect_version(folder, 1, folder.model(1));
  expect_version(folder, 3, folder.model(3));
}

TEST_F(Import, GoesOnWhereTheChainEndsAndDoesNothingTwice) {
  folder.write_all(slime(), 2);
  EXPECT_EQ(import_all(folder, folder.import_options()).value(), 3U);
  EXPECT_EQ(import_all(folder, folder.import_options()).value(), 0U);
  ASSERT_TRUE(folder.write(slime(), 3, folder.model(2), folder.model(3)).ok());
  fs::remove_all(folder.path("work"));  // the chain has it
  EXPECT_EQ(import_all(folder, folder.import_options()).value(), 1U);
  expect_version(folder, 3, folder.model(3));
}

TEST_F(Import, ARangeEnds) {
  folder.write_all(slime());
  ImportOptions options = folder.import_options();
  options.range.to = 2;
  EXPECT_EQ(import_all(folder, options).value(), 3U);
  options.range = {5, 6};
  EXPECT_FAILS(import_all(folder, options), kNotFound, "is at version 2",
               "version 5 comes after version 4");
}

TEST_F(Import, ModelsLargerThanMemoryAreMadeInAFile) {
  DW_LABEL(long);
  folder.write_all(slime());
  ImportOptions options = folder.import_options();
  options.memory_bytes = 1;
  ASSERT_TRUE(import_all(folder, options).ok());
  expect_version(folder, 3, folder.model(3));
}

TEST_F(Import, ADamagedModelInTheWorkFolderIsMadeAnewFromTheChain) {
  for (const std::string dialect : {"slime", "slime-gen1"}) {  // with digests, and without
    const BridgeFolder folder;
    folder.write_all(*find_dialect(dialect), 2);
    ASSERT_TRUE(import_all(folder, folder.import_options(dialect)).ok());
    fs::path weights;
    for (const auto& item : fs::recursive_directory_iterator(folder.path("work"))) {
      if (item.path().extension() == ".safetensors") weights = item.path();
    }
    const auto written = fs::last_write_time(weights);
    for (const int at : {-40, 2000}) overwrite(weights, at, "damage");
    fs::last_write_time(weights, written);
    ASSERT_TRUE(folder.write(*find_dialect(dialect), 3, folder.model(2), folder.model(3)).ok());
    must(import_all(folder, folder.import_options(dialect)));
    expect_version(folder, 3, folder.model(3));
  }
}

// What generation 1 writes itself: nothing says that a version is complete.
void remove_done(const BridgeFolder& folder) {
  for (const auto& item : fs::recursive_directory_iterator(folder.path("source"))) {
    if (item.path().filename() == "DONE") fs::remove(item.path());
  }
}

TEST_F(Import, UnsealedVersionsAreWaitedFor) {
  const Dialect& gen1 = *find_dialect("slime-gen1");
  folder.write_all(gen1, 1);
  remove_done(folder);
  ImportOptions options = folder.import_options("slime-gen1");
  options.settle_seconds = std::numeric_limits<double>::infinity();
  auto importer = Importer::open(folder.store("source"), folder.store("chain"), options).value();
  EXPECT_TRUE(importer.next().value());  // the base
  EXPECT_EQ(importer.waits_for(), "");
  EXPECT_FALSE(importer.next().value());
  EXPECT_TRUE(contains(importer.waits_for(), "version 1 may still get files"));
  ASSERT_TRUE(folder.write(gen1, 2, folder.model(1), folder.model(2)).ok());
  remove_done(folder);
  EXPECT_EQ(importer.next().value()->version, 1U);  // the writer went on
  EXPECT_EQ(importer.waits_for(), "");
  EXPECT_FALSE(importer.next().value());
}

TEST_F(Import, WhoDoesNotFollowTakesUnsealedVersions) {
  folder.write_all(*find_dialect("slime-gen1"), 2);
  remove_done(folder);
  EXPECT_EQ(import_all(folder, folder.import_options("slime-gen1")).value(), 3U);
  expect_version(folder, 2, folder.model(2));
}

TEST_F(Import, FilesThatCameAfterAVersionWasTakenAreNoticed) {
  const Dialect& gen1 = *find_dialect("slime-gen1");
  folder.write_all(gen1, 1);
  remove_done(folder);
  auto importer = Importer::open(folder.store("source"), folder.store("chain"),
                                 folder.import_options("slime-gen1"))
                      .value();
  EXPECT_TRUE(importer.next().value());
  EXPECT_EQ(importer.next().value()->version, 1U);
  EXPECT_FALSE(importer.next().value());
  // A slow rank.
  Model late = folder.model(0);
  change(&late[3], 0.1, 77);
  ASSERT_TRUE(folder.write(gen1, 1, folder.model(0), late, {}, false, "other").ok());
  fs::rename(folder.path("other") / "weight_v000001/rank0000_flush000000.safetensors",
             folder.path("source") / "weight_v000001/rank0001_flush000000.safetensors");
  EXPECT_FALSE(importer.next().value());
  ASSERT_TRUE(folder.write(gen1, 2, folder.model(1), folder.model(2)).ok());
  EXPECT_FAILS(importer.next(), kBaseMismatch, "version 1", "did files come late");
  EXPECT_EQ(head_of(folder), 1U);
}

}  // namespace
}  // namespace deltawire::testing
