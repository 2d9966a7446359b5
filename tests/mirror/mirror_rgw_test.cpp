// A mirror between a folder and a real S3 server, and back.

#include "deltawire/mirror.h"
#include "deltawire/publisher.h"
#include "store/s3_gateway.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

Status copy_all(const std::shared_ptr<Store>& from, const std::shared_ptr<Store>& to) {
  DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(from));
  DW_ASSIGN_OR_RETURN(Mirror mirror, Mirror::open(chain, to, {.all = true}));
  while (true) {
    DW_ASSIGN_OR_RETURN(const auto copied, mirror.next());
    if (!copied) return {};
  }
}

TEST(MirrorRgw, CopiesAFolderToABucketAndBack) {
  REQUIRE_GATEWAY();
  const TempFolder folder;
  StoreOptions in_pieces = gateway_options();
  in_pieces.multipart_bytes = uint64_t{5} << 20;
  const auto source = open_store((folder.path() / "source").string(), {}).value();
  const auto bucket = open_fresh_store(in_pieces);
  const auto leaf = open_store((folder.path() / "leaf").string(), {}).value();
  auto publisher =
      must(Publisher::open(source, {.anchors = Anchors{.every = 2}, .limits = {.threads = 1}}));
  Model model = Model::make(400);  // parts of several pieces
  for (int version = 0; version < 4; ++version) {
    model.step();
    ASSERT_TRUE(publisher.publish(model.views()).ok());
    ASSERT_TRUE(copy_all(source, bucket).ok());
    ASSERT_TRUE(copy_all(bucket, leaf).ok());
  }
  EXPECT_TRUE(holds(bucket, 3, model));
  EXPECT_TRUE(holds(leaf, 3, model));
  for (const char* prefix : {"run.json", "manifests/", "parts/", "full/", "hops/", "schemas/"}) {
    const auto names = objects_of(*source, prefix);
    EXPECT_EQ(objects_of(*bucket, prefix), names);
    EXPECT_EQ(objects_of(*leaf, prefix), names);
    for (const std::string& name : names) {
      EXPECT_EQ(leaf->get(name, uint64_t{1} << 30).value(),
                source->get(name, uint64_t{1} << 30).value())
          << name;
    }
  }
}

}  // namespace
}  // namespace deltawire::testing
