// TRL's anchors and deltas, which have no base version and no digests.
#include "bridge/bridge_model.h"

namespace deltawire::testing {
namespace {

const Dialect& trl() { return *find_dialect("trl"); }

ImportOptions trl_options(const BridgeFolder& folder) {
  ImportOptions options = folder.import_options("trl");
  options.base.clear();
  return options;
}

void write_run(const BridgeFolder& folder, const std::string& encoding) {
  ASSERT_TRUE(folder.write(trl(), 1, {}, folder.model(1), {}, true).ok());
  for (const uint64_t version : {2, 3}) {
    must(folder.write(trl(), version, folder.model(version - 1), folder.model(version),
                      {.encoding = encoding}));
  }
}

using ImportTrl = BridgeTest;

TEST_F(ImportTrl, StartsAtTheAnchorAndKeepsNumbers) {
  for (const std::string encoding : {"v1", "raw", "gap_delta"}) {
    const BridgeFolder folder;
    write_run(folder, encoding);
    EXPECT_EQ(must(import_all(folder, trl_options(folder))), 3U);
    for (uint64_t version = 1; version <= 3; ++version) {
      expect_version(folder, version, folder.model(version));
    }
  }
}

TEST_F(ImportTrl, MissingFileFailsUnlessDeclaredUnchanged) {
  ASSERT_TRUE(folder.write(trl(), 1, {}, folder.model(1), {}, true).ok());
  ASSERT_TRUE(folder.write(trl(), 3, folder.model(1), folder.model(2)).ok());
  ImportOptions options = trl_options(folder);
  EXPECT_FAILS(import_all(folder, options), kNotFound, "version 2 is missing");
  EXPECT_EQ(head_of(folder), 1U);
  options.missing_is_unchanged = true;
  EXPECT_EQ(import_all(folder, options).value(), 2U);
  expect_version(folder, 2, folder.model(1));
  expect_version(folder, 3, folder.model(2));
}

TEST_F(ImportTrl, DetectsAFileThatAppearsLate) {
  ASSERT_TRUE(folder.write(trl(), 1, {}, folder.model(1), {}, true).ok());
  ImportOptions options = trl_options(folder);
  options.missing_is_unchanged = true;
  options.source_may_be_empty = true;
  {
    auto importer = Importer::open(folder.store("source"), folder.store("chain"), options).value();
    EXPECT_EQ(importer.next().value()->version, 1U);
    EXPECT_FALSE(importer.next().value());  // nothing is missing until a later version is there
    ASSERT_TRUE(folder.write(trl(), 3, folder.model(1), folder.model(2)).ok());
    EXPECT_FALSE(importer.next().value()->source);
    EXPECT_EQ(importer.next().value()->version, 3U);
    ASSERT_TRUE(folder.write(trl(), 2, folder.model(1), folder.model(2)).ok());
    EXPECT_FAILS(importer.next(), kBaseMismatch, "version 2 appeared after",
                 "import into another store");
  }
  EXPECT_FAILS(import_all(folder, options), kBaseMismatch, "version 2 appeared after");
  EXPECT_EQ(head_of(folder), 3U);
}

using ExportTrl = BridgeTest;

TEST_F(ExportTrl, WritesAnchorsEveryNVersionsAndRoundTrips) {
  folder.write_all(slime());
  ASSERT_TRUE(import_all(folder, folder.import_options()).ok());
  ExportOptions options = folder.export_options("trl");
  options.anchor_every = 3;
  EXPECT_EQ(export_all(folder, options).value(), 3U);
  EXPECT_TRUE(fs::exists(folder.path("target/anchors/step_000001.safetensors")));
  EXPECT_TRUE(fs::exists(folder.path("target/deltas/step_000002.safetensors")));
  EXPECT_TRUE(fs::exists(folder.path("target/anchors/step_000003.safetensors")));
  ASSERT_TRUE(import_all(folder, trl_options(folder), "target", "b").ok());
  for (uint64_t version = 1; version <= 3; ++version) {
    expect_version(folder, version, folder.model(version), "b");
  }
}

}  // namespace
}  // namespace deltawire::testing
