#include "store/s3/address.h"

#include "test_files.h"

namespace deltawire::s3 {
namespace {

using deltawire::testing::is_failure;

// "URL, host"
std::string where(std::string_view endpoint, std::string_view bucket, bool virtual_host,
                  std::string_view key, std::string_view region = "us-east-1") {
  const auto address = Address::make(endpoint, bucket, virtual_host);
  if (!address.ok()) return address.status().to_string();
  const Target target = address->target(region, key);
  return target.scheme_and_host + target.path + ", " + target.host;
}

TEST(S3Address, PathStyle) {
  EXPECT_EQ(where("http://h:9000", "b1", false, "a/b"), "http://h:9000/b1/a/b, h:9000");
  EXPECT_EQ(where("http://h:9000/", "b1", false, ""), "http://h:9000/b1, h:9000");
  EXPECT_EQ(where("https://[::1]:9", "b1", false, "k"), "https://[::1]:9/b1/k, [::1]:9");
  EXPECT_EQ(where("http://h", "b1", false, "a b"), "http://h/b1/a%20b, h");
}

TEST(S3Address, VirtualHostStyle) {
  EXPECT_EQ(where("http://h:9000", "b1", true, "a/b"), "http://b1.h:9000/a/b, b1.h:9000");
  EXPECT_EQ(where("http://h:9000", "b1", true, ""), "http://b1.h:9000/, b1.h:9000");
}

TEST(S3Address, ThePortOfTheSchemeIsNotPartOfTheHost) {
  EXPECT_EQ(where("http://h:80", "b1", false, "k"), "http://h/b1/k, h");
  EXPECT_EQ(where("https://h:443", "b1", false, "k"), "https://h/b1/k, h");
  EXPECT_EQ(where("https://h:80", "b1", false, "k"), "https://h:80/b1/k, h:80");
}

TEST(S3Address, Aws) {
  EXPECT_EQ(where("", "b1", false, "k"),
            "https://b1.s3.us-east-1.amazonaws.com/k, b1.s3.us-east-1.amazonaws.com");
  EXPECT_EQ(where("", "b.1", false, "k", "eu-west-1"),
            "https://s3.eu-west-1.amazonaws.com/b.1/k, s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(where("", "b1", true, "k", "cn-north-1"),
            "https://b1.s3.cn-north-1.amazonaws.com.cn/k, b1.s3.cn-north-1.amazonaws.com.cn");
}

TEST(S3Address, BadEndpointsAreRefusedUnseen) {
  for (const char* bad :
       {"h:9000", "ftp://h", "http://", "http://user:hunter2@h", "http://h/path", "http://h?q",
        "http://h#f", "http://h:", "http://h:0", "http://h:65536", "http://h:9x", "http://a b",
        "http://h\r\nx: y", "http://[::1", "http://.h", "file:///etc/passwd"}) {
    const Status status = Address::make(bad, "b1", false).status();
    EXPECT_FAILS(status, Code::kInvalidArgument, "endpoint") << bad;
    EXPECT_FALSE(contains(status.message(), "hunter2"));
  }
}

TEST(S3Address, BucketsAndRegions) {
  for (const char* good : {"abc", "a-b.c", "A_1", "123"}) EXPECT_TRUE(check_bucket(good).ok());
  for (const char* bad : {"", "ab", ".abc", "abc.", "a..b", "a/b", "a b", "a?b", "ab\n"}) {
    EXPECT_FAILS(check_bucket(bad), Code::kInvalidArgument, "bucket") << bad;
  }
  EXPECT_FALSE(check_bucket(std::string(64, 'a')).ok());
  EXPECT_TRUE(check_region("eu-west-1").ok());
  for (const char* bad : {"", "a.b", "a/b", "a\r\n", "evil.example/"}) {
    EXPECT_FAILS(check_region(bad), Code::kInvalidArgument, "region") << bad;
  }
}

}  // namespace
}  // namespace deltawire::s3
