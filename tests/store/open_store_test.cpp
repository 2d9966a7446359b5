#include "deltawire/store.h"
#include "faults/faulty_store.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

std::string get(Store& store, std::string_view name) {
  const auto text = store.get(name, 1 << 20);
  return text.ok() ? *text : text.status().to_string();
}

::testing::AssertionResult refused(const std::string& url, Code code, const char* why) {
  const auto store = open_store(url, {});
  if (store.ok()) return ::testing::AssertionFailure() << url << " was opened";
  return is_failure(store.status(), code, why);
}

}  // namespace

TEST(OpenStore, SharesMemoryStoresByName) {
  const auto one = open_store("memory:shared", {}), same = open_store("memory:shared", {}),
             other = open_store("memory:other", {});
  ASSERT_TRUE(one.ok() && same.ok() && other.ok());
  ASSERT_TRUE((*one)->put("a", MemoryBody("x")).ok());
  EXPECT_EQ(get(**same, "a"), "x");
  EXPECT_EQ((*other)->stat("a").status().code(), Code::kNotFound);
  EXPECT_EQ((*one)->url(), "memory:shared");
  EXPECT_EQ((*one)->local_folder(), "");
}

TEST(OpenStore, OpensFoldersByPathAndUrl) {
  const TempFolder folder;
  const std::string path = folder.path() / "a room";
  const auto by_path = open_store(path, {});
  const auto by_url = open_store("file://" + (folder.path() / "a%20room/").string(), {});
  const auto by_host = open_store("file://localhost" + (folder.path() / "a%20room").string(), {});
  ASSERT_TRUE(by_path.ok() && by_url.ok() && by_host.ok());
  EXPECT_FALSE(fs::exists(path));  // made by the first put
  EXPECT_EQ((*by_path)->list("", "", 10)->size(), 0u);
  ASSERT_TRUE((*by_path)->put("x/y", MemoryBody("1")).ok());
  EXPECT_EQ(get(**by_url, "x/y"), "1");
  EXPECT_EQ(get(**by_host, "x/y"), "1");
  EXPECT_EQ((*by_url)->local_folder(), path);
  EXPECT_EQ(read_file(fs::path(path) / "x/y"), "1");
}

TEST(OpenStore, RejectsInvalidUrls) {
  EXPECT_TRUE(refused("", Code::kInvalidArgument, "empty"));
  EXPECT_TRUE(refused("gs://bucket/x", Code::kUnsupported, "gs://bucket/x: no such kind of store"));
  EXPECT_TRUE(refused("file://host/path", Code::kInvalidArgument, "another host"));
  EXPECT_TRUE(refused("file://path", Code::kInvalidArgument, "another host"));
  EXPECT_TRUE(refused("file:///a%2", Code::kInvalidArgument, "two hex digits"));
  EXPECT_TRUE(refused("file:///a%zz", Code::kInvalidArgument, "two hex digits"));
  EXPECT_TRUE(refused("file:///a%00b", Code::kInvalidArgument, "zero byte"));
  EXPECT_TRUE(refused("s3://", Code::kInvalidArgument, "no bucket"));
  EXPECT_TRUE(refused("s3:///prefix", Code::kInvalidArgument, "no bucket"));
  EXPECT_TRUE(refused("s3:/bucket/prefix", Code::kInvalidArgument, "no bucket"));
  EXPECT_TRUE(refused("http:/host:1", Code::kInvalidArgument, "write http://"));
  EXPECT_TRUE(refused("host:8410", Code::kInvalidArgument, "write http://host:8410"));
  EXPECT_TRUE(refused("s3://bucket/../x", Code::kInvalidArgument, "not the name of an object"));
}

TEST(OpenStore, AddsDecorators) {
  StoreOptions options{.max_bytes_per_second = uint64_t{1} << 40,
                       .wrap = inject_faults("unavailable:n=1,flip:op=get:name=flipped")};
  const auto store = must(open_store("memory:everything", options));
  EXPECT_TRUE(store->put("a", MemoryBody("12345")).ok());
  EXPECT_TRUE(store->put("flipped", MemoryBody("12345")).ok());
  EXPECT_NE(get(*store, "flipped"), "12345");
  EXPECT_EQ(get(*store, "a"), "12345");
}

TEST(OpenStore, RejectsBadFaultsOnOpening) {
  StoreOptions options{.wrap = inject_faults("explode")};
  EXPECT_FAILS(open_store("memory:x", options), kInvalidArgument, "fault", "explode");
}

TEST(OpenStore, DecoratedStoresHaveNoLocalFolder) {
  const TempFolder folder;
  StoreOptions options;
  EXPECT_EQ((*open_store(folder.path(), options))->local_folder(), folder.path());
  options.wrap = inject_faults("flip");
  EXPECT_EQ((*open_store(folder.path(), options))->local_folder(), "");
  options.wrap = inject_faults("");
  options.max_bytes_per_second = 1;
  EXPECT_EQ((*open_store(folder.path(), options))->local_folder(), "");
}

}  // namespace deltawire::testing
