#include "store/s3/wire/answers.h"

#include <gtest/gtest.h>

#include "test_files.h"

namespace deltawire::s3 {
namespace {

using deltawire::testing::is_failure;

std::string list_of(const std::string& inside) {
  return "<?xml version=\"1.0\"?><ListBucketResult "
         "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">" +
         inside + "</ListBucketResult>";
}

constexpr char kOne[] =
    "<Contents><Key>p/a&amp;b</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified>"
    "<ETag>&quot;e&quot;</ETag><Size>434234</Size><Owner><ID>1</ID></Owner></Contents>";

TEST(S3Answers, List) {
  const auto page =
      parse_list(list_of("<Name>b</Name><IsTruncated>false</IsTruncated>" + std::string(kOne) +
                         "<Contents><Key>z</Key><Size>0</Size></Contents>"));
  ASSERT_TRUE(page.ok()) << page.status().to_string();
  ASSERT_EQ(page->objects.size(), 2u);
  EXPECT_EQ(page->objects[0].key, "p/a&b");
  EXPECT_EQ(page->objects[0].size_bytes, 434234u);
  EXPECT_EQ(page->objects[0].modified, 1255369830);
  EXPECT_EQ(page->objects[1].key, "z");
  EXPECT_EQ(page->objects[1].modified, 0);
  EXPECT_EQ(page->continuation_token, "");
}

TEST(S3Answers, ListGoesOn) {
  const std::string token = "<NextContinuationToken>t+/=</NextContinuationToken>";
  EXPECT_EQ(parse_list(list_of("<IsTruncated>true</IsTruncated>" + token))->continuation_token,
            "t+/=");
  EXPECT_EQ(parse_list(list_of("<IsTruncated>false</IsTruncated>" + token))->continuation_token,
            "");
  EXPECT_TRUE(is_failure(parse_list(list_of("<IsTruncated>true</IsTruncated>")).status(),
                         Code::kCorruption, "continuation token"));
}

TEST(S3Answers, ListsThatAreNone) {
  const auto fails = [](const std::string& xml, const char* phrase) {
    return is_failure(parse_list(xml).status(), Code::kCorruption, phrase);
  };
  EXPECT_TRUE(fails("<html/>", "not a ListBucketResult"));
  EXPECT_TRUE(fails(list_of("<Contents><Size>1</Size></Contents>"), "no key"));
  for (const char* size : {"", "-1", "1x", "18446744073709551616", " 1"}) {
    EXPECT_TRUE(fails(
        list_of("<Contents><Key>a</Key><Size>" + std::string(size) + "</Size></Contents>"), "size"))
        << size;
  }
  EXPECT_TRUE(fails(list_of("<Contents><Key>a</Key><LastModified>now</LastModified></Contents>"),
                    "not a time"));
  EXPECT_TRUE(fails(list_of(kOne).substr(0, 200), "XML"));
}

TEST(S3Answers, Times) {
  EXPECT_EQ(*parse_time("1970-01-01T00:00:00Z"), 0);
  EXPECT_EQ(*parse_time("2026-02-28T23:59:59.999Z"), 1772323199);
  for (const char* bad : {"", "2026", "2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z",
                          "2026-01-01T24:00:00Z", "2026-01-01T00:00:00", "2026-01-01 00:00:00Z"}) {
    EXPECT_FALSE(parse_time(bad).ok()) << bad;
  }
}

TEST(S3Answers, Errors) {
  const ErrorAnswer error = parse_error(
      "<Error><Code>NoSuchKey</Code><Message>gone</Message><RequestId>r1</RequestId>"
      "<Region>eu-west-1</Region></Error>");
  EXPECT_EQ(error.code, "NoSuchKey");
  EXPECT_EQ(error.message, "gone");
  EXPECT_EQ(error.request_id, "r1");
  EXPECT_EQ(error.region, "eu-west-1");
  EXPECT_EQ(parse_error("").code, "");
  EXPECT_EQ(parse_error("<html>Bad Gateway</html>").code, "");
  EXPECT_EQ(parse_error("<Error><Code>NoSuchKey</Code>").code, "");  // cut off: not believed
}

TEST(S3Answers, Uploads) {
  EXPECT_EQ(*parse_upload_id("<InitiateMultipartUploadResult><Bucket>b</Bucket>"
                             "<UploadId>2~abc</UploadId></InitiateMultipartUploadResult>"),
            "2~abc");
  EXPECT_FALSE(parse_upload_id("<InitiateMultipartUploadResult/>").ok());
  EXPECT_FALSE(parse_upload_id("<a/>").ok());
  EXPECT_TRUE(
      is_completed("\n <CompleteMultipartUploadResult><ETag>e</ETag>"
                   "</CompleteMultipartUploadResult>"));
  EXPECT_FALSE(is_completed("<Error><Code>InternalError</Code></Error>"));
  EXPECT_FALSE(is_completed("<CompleteMultipartUploadResult>"));
  EXPECT_FALSE(is_completed(""));
}

}  // namespace
}  // namespace deltawire::s3
