// The XML of a server that is not trusted.
#include "store/s3/wire/xml.h"

#include <gtest/gtest.h>

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

::testing::AssertionResult is_defect(std::string_view xml, const char* phrase) {
  const Status status =
      read_elements(xml, [](std::string_view, const std::string&) { return Status(); });
  return is_failure(status, Code::kCorruption, phrase, "XML at byte ");
}

TEST(S3Xml, Elements) {
  EXPECT_EQ(elements("<a/>"), "/a=;");
  EXPECT_EQ(elements("<a></a>"), "/a=;");
  EXPECT_EQ(elements("<a>one<b>two</b>three<b/></a>"), "/a/b=two;/a/b=;/a=onethree;");
  EXPECT_EQ(elements("<?xml version=\"1.0\"?>\n<!-- <no> -->\n<a> x </a >\n"), "/a= x ;");
  EXPECT_EQ(elements("<a:b xmlns:a='u' c = \"<>/&\"><a:d/></a:b>"), "/b/d=;/b=;");
}

TEST(S3Xml, Characters) {
  EXPECT_EQ(elements("<a>&lt;&gt;&amp;&quot;&apos;</a>"), "/a=<>&\"';");
  EXPECT_EQ(elements("<a>&#65;&#x42;&#xe4;&#x20AC;&#x1F600;</a>"), "/a=AB\u00e4\u20ac\U0001F600;");
  EXPECT_EQ(elements("<a>1<![CDATA[<b>&amp;]]>2</a>"), "/a=1<b>&amp;2;");
  EXPECT_EQ(elements("<a>\xff\x01</a>"), "/a=\xff\x01;");  // bytes are the caller's business
}

TEST(S3Xml, EntitiesAreNeverDefined) {
  EXPECT_TRUE(is_defect("<!DOCTYPE a [<!ENTITY b \"bbbbbbbb\">]><a>&b;</a>", "document type"));
  EXPECT_TRUE(is_defect("<a><!DOCTYPE b></a>", "document type"));
  EXPECT_TRUE(is_defect("<a><!ENTITY b 'c'></a>", "document type"));
  EXPECT_TRUE(is_defect("<a>&b;</a>", "entity is not known"));
  for (const char* bad : {"&;", "&#;", "&#x;", "&#xZ;", "&#6A;", "&#0;", "&#xD800;", "&#x110000;",
                          "&#99999999;", "&#-1;", "&lt", "&#x4"}) {
    EXPECT_TRUE(is_defect("<a>" + std::string(bad) + "</a>", "entity")) << bad;
  }
}

TEST(S3Xml, Defects) {
  EXPECT_TRUE(is_defect("", "no element"));
  EXPECT_TRUE(is_defect("  \n", "no element"));
  EXPECT_TRUE(is_defect("text", "outside of the root"));
  EXPECT_TRUE(is_defect("<![CDATA[x]]>", "outside of the root"));
  EXPECT_TRUE(is_defect("<a/>text", "outside of the root"));
  EXPECT_TRUE(is_defect("<a/><b/>", "second root"));
  EXPECT_TRUE(is_defect("</a>", "does not match"));
  EXPECT_TRUE(is_defect("<a></b>", "does not match"));
  EXPECT_TRUE(is_defect("<x:a></y:a>", "does not match"));
  EXPECT_TRUE(is_defect("<a></a", "does not end"));
  EXPECT_TRUE(is_defect("<>", "no name"));
  EXPECT_TRUE(is_defect("< a/>", "no name"));
  EXPECT_TRUE(is_defect("<a/ >", "expected '>'"));
  EXPECT_TRUE(is_defect("<a b>", "no value"));
  EXPECT_TRUE(is_defect("<a b=c>", "not quoted"));
  EXPECT_TRUE(is_defect("<a b='c>", "does not end"));
  EXPECT_TRUE(is_defect("<a =''>", "name of an attribute"));
  EXPECT_TRUE(is_defect("<a><!-- ", "comment does not end"));
  EXPECT_TRUE(is_defect("<a><? ", "instruction does not end"));
  EXPECT_TRUE(is_defect("<a><![CDATA[ ", "CDATA section does not end"));
}

TEST(S3Xml, EveryTruncationIsADefect) {
  const std::string xml =
      "<?xml version=\"1.0\"?><a x=\"1\"><!-- c --><b>t&amp;&#x41;<![CDATA[z]]></b><c/></a>";
  ASSERT_EQ(elements(xml), "/a/b=t&Az;/a/c=;/a=;");
  for (size_t size = 0; size < xml.size(); ++size) {
    EXPECT_TRUE(is_defect(std::string_view(xml).substr(0, size), "")) << size;
  }
}

TEST(S3Xml, DepthIsLimited) {
  const auto nested = [](int depth) {
    std::string xml;
    for (int i = 0; i < depth; ++i) xml += "<a>";
    for (int i = 0; i < depth; ++i) xml += "</a>";
    return xml;
  };
  EXPECT_TRUE(elements(nested(32)).starts_with("/a/a/a/"));
  EXPECT_TRUE(is_defect(nested(33), "too deep"));
  EXPECT_TRUE(is_defect(nested(1'000'000), "too deep"));
}

TEST(S3Xml, CallersFailureEndsIt) {
  int calls = 0;
  const Status status = read_elements("<a><b/><c/></a>", [&](std::string_view, const std::string&) {
    return ++calls == 2 ? io_error("enough") : Status();
  });
  EXPECT_TRUE(is_failure(status, Code::kIo, "enough"));
  EXPECT_EQ(calls, 2);
}

TEST(S3Xml, EscapedTextReadsBack) {
  const std::string text = "<\"a\" & 'b'>";
  EXPECT_EQ(elements("<a>" + xml_escape(text) + "</a>"), "/a=" + text + ";");
}

}  // namespace
}  // namespace deltawire::s3
