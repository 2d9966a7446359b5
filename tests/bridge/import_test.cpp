#include <limits>

#include "bridge/bridge_model.h"
#include "deltawire/maintain.h"

namespace deltawire::testing {
namespace {

struct Spoken {
  std::string dialect, encoding, checksum;
};

class ImportDialect : public ::testing::TestWithParam<Spoken> {};

TEST_P(ImportDialect, EveryVersionMatchesTheSource) {
  const BridgeFolder folder;
  ForeignOptions options{.encoding = GetParam().encoding, .checksum = GetParam().checksum};
  folder.write_all(*find_dialect(GetParam().dialect), 3, options);
  const auto count = must(import_all(folder, folder.import_options(GetParam().dialect)));
  EXPECT_EQ(count, 4U);  // with the base
  for (uint64_t version = 0; version <= 3; ++version) {
    expect_version(folder, version, folder.model(version));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ImportDialect,
                         ::testing::Values(Spoken{"slime", "xor", "xxh3-128"},
                                           Spoken{"slime", "xor", "adler32"},
                                           Spoken{"slime", "overwrite", "xxh3-128"},
                                           Spoken{"slime", "overwrite", "adler32"}));

using Import = BridgeTest;

TEST_F(Import, ManifestsRecordTheirOrigin) {
  folder.write_all(slime(), 1);
  ASSERT_TRUE(import_all(folder, folder.import_options()).ok());
  const Chain chain = Chain::open(folder.store("chain")).value();
  for (const uint64_t version : {0, 1}) {
    EXPECT_EQ(chain.version(version)->manifest.origin,
              "slime " + fs::weakly_canonical(folder.path("source")).string());
  }
}

TEST_F(Import, CountsVersionsWithoutChanges) {
  ASSERT_TRUE(folder.write(slime(), 1, folder.model(0), folder.model(1)).ok());
  ASSERT_TRUE(folder.write(slime(), 2, folder.model(1), folder.model(1)).ok());
  ASSERT_TRUE(folder.write(slime(), 3, folder.model(1), folder.model(3)).ok());
  must(import_all(folder, folder.import_options()));
  expect_version(folder, 2, folder.model(1));
  expect_version(folder, 3, folder.model(3));
}

TEST_F(Import, FullFirstVersionNeedsNoBase) {
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

TEST_F(Import, FullVersionsMayFollowDeltas) {
  ASSERT_TRUE(folder.write(slime(), 1, folder.model(0), folder.model(1)).ok());
  ASSERT_TRUE(folder.write(slime(), 2, {}, folder.model(2), {}, true).ok());
  ASSERT_TRUE(folder.write(slime(), 3, folder.model(2), folder.model(3)).ok());
  ASSERT_TRUE(import_all(folder, folder.import_options()).ok());
  expect_version(folder, 2, folder.model(2));
  expect_version(folder, 3, folder.model(3));
}

TEST_F(Import, StartsAtALaterVersionWithItsBase) {
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

TEST_F(Import, ContinuesAtTheHead) {
  folder.write_all(slime(), 2);
  EXPECT_EQ(import_all(folder, folder.import_options()).value(), 3U);
  EXPECT_EQ(import_all(folder, folder.import_options()).value(), 0U);
  ASSERT_TRUE(folder.write(slime(), 3, folder.model(2), folder.model(3)).ok());
  fs::remove_all(folder.path("work"));  // the chain has it
  EXPECT_EQ(import_all(folder, folder.import_options()).value(), 1U);
  expect_version(folder, 3, folder.model(3));
}

TEST_F(Import, RespectsTheRange) {
  folder.write_all(slime());
  ImportOptions options = folder.import_options();
  options.range.to = 2;
  EXPECT_EQ(import_all(folder, options).value(), 3U);
  options.range = {5, 6};
  EXPECT_FAILS(import_all(folder, options), kNotFound, "is at version 2",
               "version 5 comes after version 4");
}

TEST_F(Import, BuildsLargeModelsInAFile) {
  DW_LABEL(long);
  folder.write_all(slime());
  ImportOptions options = folder.import_options();
  options.memory_bytes = 1;
  ASSERT_TRUE(import_all(folder, options).ok());
  expect_version(folder, 3, folder.model(3));
}

TEST_F(Import, RebuildsADamagedWorkFolder) {
  for (const std::string dialect : {"slime", "trl"}) {  // with digests, and without
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

}  // namespace
}  // namespace deltawire::testing
