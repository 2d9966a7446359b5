#include "bridge/bridge_model.h"
#include "bridge/export_work.h"

namespace deltawire::testing {
namespace {

// Publishes models 0 ... `last` as a trainer would.
void publish_chain(const BridgeFolder& folder, const std::vector<Model>& models,
                   const std::string& chain = "chain") {
  auto publisher = must(Publisher::open(folder.store(chain), {.schema_change = true}));
  for (const Model& model : models) {
    std::vector<PublishTensor> tensors;
    for (const TestTensor& tensor : model) {
      tensors.push_back({{tensor.name, tensor.dtype, tensor.shape, tensor.bytes}, {}});
    }
    must(publisher.publish(tensors));
  }
}

std::vector<Model> models_of(const BridgeFolder& folder) {
  return {folder.model(0), folder.model(1), folder.model(2), folder.model(3)};
}

struct Way {
  std::string dialect, encoding, checksum;
};

class ExportDialect : public ::testing::TestWithParam<Way> {};

// Chain A -> exported files -> chain B.
TEST_P(ExportDialect, RoundTripKeepsDigests) {
  const BridgeFolder folder;
  publish_chain(folder, models_of(folder), "a");
  ExportOptions options = folder.export_options(GetParam().dialect);
  options.encoding = GetParam().encoding;
  options.checksum = GetParam().checksum;
  EXPECT_EQ(must(export_all(folder, options, "a")), 3U);
  must(import_all(folder, folder.import_options(GetParam().dialect), "target", "b"));
  const Chain a = Chain::open(folder.store("a")).value(),
              b = Chain::open(folder.store("b")).value();
  for (uint64_t version = 0; version <= 3; ++version) {
    EXPECT_EQ(a.version(version)->manifest.state, b.version(version)->manifest.state) << version;
    EXPECT_EQ(a.version(version)->manifest.digests, b.version(version)->manifest.digests);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExportDialect,
                         ::testing::Values(Way{"slime", "", ""},
                                           Way{"slime", "overwrite", "adler32"}, Way{"trl", "", ""},
                                           Way{"trl", "raw", ""}));

using Export = BridgeTest;

TEST_F(Export, SkipsVersionsAlreadyExported) {
  publish_chain(folder, models_of(folder));
  ExportOptions options = folder.export_options();
  options.range.to = 2;
  EXPECT_EQ(export_all(folder, options).value(), 2U);
  options.range.to.reset();
  fs::remove_all(options.work);
  EXPECT_EQ(export_all(folder, options).value(), 1U);
  EXPECT_EQ(export_all(folder, options).value(), 0U);
  ASSERT_TRUE(import_all(folder, folder.import_options(), "target", "b").ok());
  expect_version(folder, 3, folder.model(3), "b");
}

TEST_F(Export, PartialRangeStartsWithAFullVersion) {
  publish_chain(folder, models_of(folder));
  ExportOptions options = folder.export_options();
  options.range.from = 2;
  EXPECT_EQ(export_all(folder, options).value(), 2U);
  EXPECT_TRUE(slime().open(*folder.store("target"), 2).value()->info().full);
  EXPECT_FALSE(slime().open(*folder.store("target"), 3).value()->info().full);
  ImportOptions import = folder.import_options();
  import.base.clear();
  ASSERT_TRUE(import_all(folder, import, "target", "b").ok());
  expect_version(folder, 2, folder.model(2), "b");
  expect_version(folder, 3, folder.model(3), "b");
}

TEST_F(Export, RangeOfDeltasNotesTheRequiredBase) {
  publish_chain(folder, models_of(folder));
  ExportOptions options = folder.export_options();
  options.encoding = "xor";
  options.range.from = 2;
  const Chain chain = Chain::open(folder.store("chain")).value();
  Exporter exporter = Exporter::open(chain, folder.store("target"), options).value();
  const auto exported = must(exporter.next());
  EXPECT_TRUE(contains(exported->note, "begin with version 1"));
  EXPECT_FALSE(exported->target.full);
}

TEST_F(Export, WritesFullVersionsOnRequest) {
  publish_chain(folder, models_of(folder));
  ExportOptions options = folder.export_options();
  options.full = true;
  EXPECT_EQ(export_all(folder, options).value(), 3U);
  for (const uint64_t version : {1, 2, 3}) {
    EXPECT_TRUE(slime().open(*folder.store("target"), version).value()->info().full);
  }
}

TEST_F(Export, ExportsVersionsWithoutChanges) {
  ASSERT_TRUE(folder.write(slime(), 1, folder.model(0), folder.model(0)).ok());
  ASSERT_TRUE(folder.write(slime(), 2, folder.model(0), folder.model(1)).ok());
  ASSERT_TRUE(import_all(folder, folder.import_options()).ok());
  EXPECT_EQ(export_all(folder, folder.export_options()).value(), 2U);
  EXPECT_EQ(slime().versions(*folder.store("target")).value(), (std::vector<uint64_t>{1, 2}));
}

TEST_F(Export, RebuildsADamagedWorkFolder) {
  publish_chain(folder, models_of(folder));
  ExportOptions options = folder.export_options();
  options.memory_bytes = 1;  // old tensors in a file, too
  options.range.to = 2;
  ASSERT_TRUE(export_all(folder, options).ok());
  for (const auto& item : fs::recursive_directory_iterator(options.work)) {
    if (item.path().extension() != ".safetensors") continue;
    const auto written = fs::last_write_time(item.path());
    for (const int at : {2000, 8000, 16000}) overwrite(item.path(), at, "damage");
    fs::last_write_time(item.path(), written);
  }
  options.range.to.reset();
  must(export_all(folder, options));
  ASSERT_TRUE(import_all(folder, folder.import_options(), "target", "b").ok());
  expect_version(folder, 3, folder.model(3), "b");
}

using ExportRefuses = BridgeTest;

TEST_F(ExportRefuses, TargetOfAnotherRunOrWriter) {
  publish_chain(folder, models_of(folder), "a");
  publish_chain(folder, models_of(folder), "b");
  ASSERT_TRUE(export_all(folder, folder.export_options(), "a").ok());
  EXPECT_FAILS(export_all(folder, folder.export_options(), "b"), kConflict,
               "holds an export of run");
  folder.write_all(slime(), 1, {}, "theirs");
  EXPECT_FAILS(export_all(folder, folder.export_options(), "a", "theirs"), kConflict,
               "not written by an export");
}

TEST_F(ExportRefuses, ContinuationFromForeignVersions) {
  publish_chain(folder, models_of(folder));
  ExportOptions options = folder.export_options();
  options.range.to = 2;
  ASSERT_TRUE(export_all(folder, options).ok());
  fs::remove_all(folder.path("target/weight_v000002"));
  ASSERT_TRUE(folder.write(slime(), 2, folder.model(1), folder.model(3), {}, false, "target").ok());
  options.range.to.reset();
  EXPECT_FAILS(export_all(folder, options), kConflict, "version 2", "differs from the chain");
}

TEST_F(ExportRefuses, ChangesTheDialectCannotExpress) {
  Model fewer = folder.model(1);
  fewer.pop_back();
  Model other = folder.model(1);
  other[0].shape = {30, 40};
  for (const Model& after : {fewer, other}) {
    const std::string name = after.size() == fewer.size() ? "fewer" : "other";
    publish_chain(folder, {folder.model(0), after}, name);
    EXPECT_FAILS(export_all(folder, folder.export_options(), name, "target-" + name), kUnsupported,
                 name == "fewer" ? "norm.weight" : "head.weight");
    EXPECT_FALSE(fs::exists(folder.path("target-" + name + "/weight_v000001")));
  }
}

}  // namespace
}  // namespace deltawire::testing
