// The XML of a server that is not trusted.
#include "store/s3/answers.h"

#include "test_files.h"

namespace deltawire::s3 {
namespace {

using deltawire::testing::is_failure;

// "/a/b=text;/a=;": every element as it closes.
std::string elements(std::string_view xml) {
  std::string all;
  const Status status = read_elements(xml, [&](std::string_view path, const std::string& text) {
    all.append(path).append("=").append(text).append(";");
    return Status();
  });
  return status.ok() ? all : status.to_string();
}

::testing::AssertionResult is_defect(std::string_view xml, const char* phrase = "") {
  const Status status =
      read_elements(xml, [](std::string_view, const std::string&) { return Status(); });
  return is_failure(status, Code::kCorruption, phrase, "XML at byte ");
}

TEST(S3Xml, ElementsAndCharacters) {
  EXPECT_EQ(elements("<a/>"), "/a=;");
  EXPECT_EQ(elements("<a>one<b>two</b>three<b/></a>"), "/a/b=two;/a/b=;/a=onethree;");
  EXPECT_EQ(elements("  \n<?xml version=\"1.0\"?>\n<!-- <no> -->\n<a> x </a >\n"), "/a= x ;");
  EXPECT_EQ(elements("<a:b xmlns:a='u' c = \">/&amp;\"><a:d/></a:b>"), "/b/d=;/b=;");
  EXPECT_EQ(elements("<a>&lt;&gt;&amp;&quot;&apos;</a>"), "/a=<>&\"';");
  EXPECT_EQ(elements("<a>&#65;&#x42;&#xe4;&#x20AC;&#x1F600;</a>"), "/a=AB\u00e4\u20ac\U0001F600;");
  EXPECT_EQ(elements("<a>1<![CDATA[<b>&amp;]]>2</a>"), "/a=1<b>&amp;2;");
  const std::string text = "<\"a\" & 'b'>";
  EXPECT_EQ(elements("<a>" + xml_escape(text) + "</a>"), "/a=" + text + ";");
}

TEST(S3Xml, EntitiesAreNeverDefined) {
  EXPECT_TRUE(is_defect("<!DOCTYPE a [<!ENTITY b \"bbbbbbbb\">]><a>&b;</a>", "document type"));
  EXPECT_TRUE(is_defect("<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a/>", "document type"));
  EXPECT_TRUE(is_defect("<a><!DOCTYPE b></a>"));
  EXPECT_TRUE(is_defect("<a><!ENTITY b 'c'></a>"));
  EXPECT_TRUE(is_defect("<a>&b;</a>", "undefined entity"));
  for (const char* bad : {"&;", "&#;", "&#x;", "&#xZ;", "&#6A;", "&#0;", "&#xD800;", "&#x110000;",
                          "&#99999999;", "&#-1;", "&lt", "&#x4"}) {
    EXPECT_TRUE(is_defect("<a>" + std::string(bad) + "</a>")) << bad;
  }
}

TEST(S3Xml, Defects) {
  const std::string good =
      "<?xml version=\"1.0\"?><a x=\"1\"><!-- c --><b>t&amp;&#x41;<![CDATA[z]]></b><c/></a>";
  ASSERT_EQ(elements(good), "/a/b=t&Az;/a/c=;/a=;");
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_TRUE(is_defect(std::string_view(good).substr(0, size))) << size;
  }
  for (const char* bad :
       {"  \n", "text", "<![CDATA[x]]>", "<a/>text", "<a/><b/>", "</a>", "<a></b>", "<x:a></y:a>",
        "<>", "< a/>", "<a/ >", "<a b>", "<a b=c>", "<a =''>", "<a>\xff</a>", "<a>\x01</a>"}) {
    EXPECT_TRUE(is_defect(bad)) << bad;
  }
}

TEST(S3Xml, DepthAndSizeAreLimited) {
  const auto nested = [](int depth) {
    std::string xml;
    for (int i = 0; i < depth; ++i) xml += "<a>";
    for (int i = 0; i < depth; ++i) xml += "</a>";
    return xml;
  };
  EXPECT_TRUE(elements(nested(32)).starts_with("/a/a/a/"));
  EXPECT_TRUE(is_defect(nested(33), "too deep"));
  EXPECT_TRUE(is_defect(nested(1'000'000), "too deep"));
  EXPECT_TRUE(contains(elements(nested(2'000'000)), "8 MiB"));
}

TEST(S3Xml, CallersFailureEndsIt) {
  int calls = 0;
  const Status status = read_elements("<a><b/><c/></a>", [&](std::string_view, const std::string&) {
    return ++calls == 2 ? io_error("enough") : Status();
  });
  EXPECT_FAILS(status, Code::kIo, "enough");
  EXPECT_EQ(calls, 2);
}

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
      must(parse_list(list_of("<Name>b</Name><IsTruncated>false</IsTruncated>" + std::string(kOne) +
                              "<Contents><Key>z</Key><Size>0</Size></Contents>")));
  ASSERT_EQ(page.objects.size(), 2u);
  EXPECT_EQ(page.objects[0].key, "p/a&b");
  EXPECT_EQ(page.objects[0].size_bytes, 434234u);
  EXPECT_EQ(page.objects[0].modified, 1255369830);
  EXPECT_EQ(page.objects[1].key, "z");
  EXPECT_EQ(page.objects[1].modified, 0);
  EXPECT_EQ(page.continuation_token, "");
}

TEST(S3Answers, ListGoesOn) {
  const std::string token = "<NextContinuationToken>t+/=</NextContinuationToken>";
  EXPECT_EQ(parse_list(list_of("<IsTruncated>true</IsTruncated>" + token))->continuation_token,
            "t+/=");
  EXPECT_EQ(parse_list(list_of("<IsTruncated>false</IsTruncated>" + token))->continuation_token,
            "");
  EXPECT_FAILS(parse_list(list_of("<IsTruncated>true</IsTruncated>")), Code::kCorruption,
               "continuation token");
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
