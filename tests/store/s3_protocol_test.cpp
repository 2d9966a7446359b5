// The wire protocol: signatures, addresses, answers, pieces of objects.
#include "store/s3/sigv4.h"

#include "base/text.h"
#include "store/s3/address.h"
#include "store/s3/answers.h"
#include "store/s3/bucket.h"
#include "test_files.h"

namespace deltawire::s3 {
namespace {

// Signatures published by AWS: the test suite of Signature Version 4, and the examples of "Amazon
// S3: Authenticating Requests (AWS Signature Version 4)".
constexpr char kEmpty[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

const Credentials kSuite = {"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", ""};
const Credentials kS3 = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};

std::string suite(std::string_view path, const Pairs& query, Pairs more_headers) {
  Pairs headers = {{"Host", "example.amazonaws.com"}, {"X-Amz-Date", "20150830T123600Z"}};
  headers.insert(headers.end(), more_headers.begin(), more_headers.end());
  const std::string text = canonical_query(query);
  return authorization({"GET", path, text, headers, kEmpty},
                       {"us-east-1", "service", "20150830T123600Z"}, kSuite);
}

TEST(S3SigV4, MatchesTheAwsTestSuite) {
  struct Case {
    std::string path;
    Pairs query, more_headers;
    const char *signed_headers, *signature;
  };
  const char* const plain = "host;x-amz-date";
  const std::string all = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const Case cases[] = {
      {"/", {}, {}, plain, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
      // The query is sorted and encoded.
      {"/",
       {{"Param2", "value2"}, {"Param1", "value1"}},
       {},
       plain,
       "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
      {"/",
       {{"\u1234", "bar"}},
       {},
       plain,
       "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
      {"/",
       {{all, all}},
       {},
       plain,
       "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
      // The path is encoded once.
      {percent_encode("/\u1234", true),
       {},
       {},
       plain,
       "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
      {percent_encode("/example space/", true),
       {},
       {},
       plain,
       "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
      // Values of headers are trimmed.
      {"/",
       {},
       {{"My-Header1", " value1"}, {"My-Header2", " \"a   b   c\""}},
       "host;my-header1;my-header2;x-amz-date",
       "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
      {"/",
       {},
       {{"X-Amz-Security-Token",
         "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"}},
       "host;x-amz-date;x-amz-security-token",
       "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(suite(one.path, one.query, one.more_headers),
              "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
              "SignedHeaders=" +
                  std::string(one.signed_headers) + ", Signature=" + one.signature);
  }
}

// The signatures in the examples of S3.
std::string of_s3(std::string_view method, std::string_view path, const Pairs& query,
                  Pairs more_headers, std::string_view sha256) {
  Pairs headers = {{"host", "examplebucket.s3.amazonaws.com"},
                   {"x-amz-content-sha256", std::string(sha256)},
                   {"x-amz-date", "20130524T000000Z"}};
  headers.insert(headers.end(), more_headers.begin(), more_headers.end());
  const std::string text = canonical_query(query);
  const std::string value = authorization({method, path, text, headers, sha256},
                                          {"us-east-1", "s3", "20130524T000000Z"}, kS3);
  return value.substr(value.rfind('=') + 1);
}

TEST(S3SigV4, MatchesTheExamplesOfS3) {
  EXPECT_EQ(of_s3("GET", "/test.txt", {}, {{"range", "bytes=0-9"}}, kEmpty),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  EXPECT_EQ(of_s3("PUT", percent_encode("/test$file.text", true), {},
                  {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                   {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
                  "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  EXPECT_EQ(of_s3("GET", "/", {{"lifecycle", ""}}, {}, kEmpty),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  EXPECT_EQ(of_s3("GET", "/", {{"prefix", "J"}, {"max-keys", "2"}}, {}, kEmpty),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(S3SigV4, EncodesPathsAndQueries) {
  const std::string all = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  EXPECT_EQ(percent_encode(all, false), all);
  EXPECT_EQ(percent_encode("a/b c+d%", false), "a%2Fb%20c%2Bd%25");
  EXPECT_EQ(percent_encode("a/b c+d%", true), "a/b%20c%2Bd%25");
  EXPECT_EQ(canonical_query({{"b", "2"}, {"a b", "="}, {"a", ""}}), "a=&a%20b=%3D&b=2");
  EXPECT_EQ(amz_time(1440938160), "20150830T123600Z");
}

using deltawire::testing::is_failure;

// "URL, host"
std::string where(std::string_view endpoint, std::string_view bucket, bool virtual_host,
                  std::string_view key, std::string_view region = "us-east-1") {
  const auto address = Address::make(endpoint, bucket, virtual_host);
  if (!address.ok()) return address.status().to_string();
  const Target target = address->target(region, key);
  return target.scheme_and_host + target.path + ", " + target.host;
}

TEST(S3Address, UsesPathStyle) {
  EXPECT_EQ(where("http://h:9000", "b1", false, "a/b"), "http://h:9000/b1/a/b, h:9000");
  EXPECT_EQ(where("http://h:9000/", "b1", false, ""), "http://h:9000/b1, h:9000");
  EXPECT_EQ(where("https://[::1]:9", "b1", false, "k"), "https://[::1]:9/b1/k, [::1]:9");
  EXPECT_EQ(where("http://h", "b1", false, "a b"), "http://h/b1/a%20b, h");
}

TEST(S3Address, UsesVirtualHostStyle) {
  EXPECT_EQ(where("http://h:9000", "b1", true, "a/b"), "http://b1.h:9000/a/b, b1.h:9000");
  EXPECT_EQ(where("http://h:9000", "b1", true, ""), "http://b1.h:9000/, b1.h:9000");
}

TEST(S3Address, OmitsTheDefaultPort) {
  EXPECT_EQ(where("http://h:80", "b1", false, "k"), "http://h/b1/k, h");
  EXPECT_EQ(where("https://h:443", "b1", false, "k"), "https://h/b1/k, h");
  EXPECT_EQ(where("https://h:80", "b1", false, "k"), "https://h:80/b1/k, h:80");
}

TEST(S3Address, UsesAwsEndpointsByDefault) {
  EXPECT_EQ(where("", "b1", false, "k"),
            "https://b1.s3.us-east-1.amazonaws.com/k, b1.s3.us-east-1.amazonaws.com");
  EXPECT_EQ(where("", "b.1", false, "k", "eu-west-1"),
            "https://s3.eu-west-1.amazonaws.com/b.1/k, s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(where("", "b1", true, "k", "cn-north-1"),
            "https://b1.s3.cn-north-1.amazonaws.com.cn/k, b1.s3.cn-north-1.amazonaws.com.cn");
}

TEST(S3Address, RejectsBadEndpointsWithoutPrintingThem) {
  for (const char* bad :
       {"h:9000", "ftp://h", "http://", "http://user:hunter2@h", "http://h/path", "http://h?q",
        "http://h#f", "http://h:", "http://h:0", "http://h:65536", "http://h:9x", "http://a b",
        "http://h\r\nx: y", "http://[::1", "http://.h", "file:///etc/passwd"}) {
    const Status status = Address::make(bad, "b1", false).status();
    EXPECT_FAILS(status, kInvalidArgument, "endpoint") << bad;
    EXPECT_FALSE(contains(status.message(), "hunter2"));
  }
}

TEST(S3Address, ChecksBucketsAndRegions) {
  for (const char* good : {"abc", "a-b.c", "A_1", "123"}) EXPECT_TRUE(check_bucket(good).ok());
  for (const char* bad : {"", "ab", ".abc", "abc.", "a..b", "a/b", "a b", "a?b", "ab\n"}) {
    EXPECT_FAILS(check_bucket(bad), kInvalidArgument, "bucket") << bad;
  }
  EXPECT_FALSE(check_bucket(std::string(64, 'a')).ok());
  EXPECT_TRUE(check_region("eu-west-1").ok());
  for (const char* bad : {"", "a.b", "a/b", "a\r\n", "evil.example/"}) {
    EXPECT_FAILS(check_region(bad), kInvalidArgument, "region") << bad;
  }
}

// ---- XML from an untrusted server.

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

TEST(S3Xml, ParsesElementsAndCharacters) {
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

TEST(S3Xml, RejectsEntityDefinitions) {
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

TEST(S3Xml, RejectsMalformedXml) {
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

TEST(S3Xml, LimitsDepthAndSize) {
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

TEST(S3Xml, StopsAtTheCallersFailure) {
  int calls = 0;
  const Status status = read_elements("<a><b/><c/></a>", [&](std::string_view, const std::string&) {
    return ++calls == 2 ? io_error("enough") : Status();
  });
  EXPECT_FAILS(status, kIo, "enough");
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

TEST(S3Answers, ParsesLists) {
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

TEST(S3Answers, ParsesContinuationTokens) {
  const std::string token = "<NextContinuationToken>t+/=</NextContinuationToken>";
  EXPECT_EQ(parse_list(list_of("<IsTruncated>true</IsTruncated>" + token))->continuation_token,
            "t+/=");
  EXPECT_EQ(parse_list(list_of("<IsTruncated>false</IsTruncated>" + token))->continuation_token,
            "");
  EXPECT_FAILS(parse_list(list_of("<IsTruncated>true</IsTruncated>")), kCorruption,
               "continuation token");
}

TEST(S3Answers, RejectsInvalidLists) {
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

TEST(S3Answers, ParsesTimes) {
  EXPECT_EQ(*parse_time("1970-01-01T00:00:00Z"), 0);
  EXPECT_EQ(*parse_time("2026-02-28T23:59:59.999Z"), 1772323199);
  for (const char* bad : {"", "2026", "2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z",
                          "2026-01-01T24:00:00Z", "2026-01-01T00:00:00", "2026-01-01 00:00:00Z"}) {
    EXPECT_FALSE(parse_time(bad).ok()) << bad;
  }
}

TEST(S3Answers, ParsesErrors) {
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

TEST(S3Answers, ParsesUploadAnswers) {
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

using deltawire::testing::is_failure;

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(S3Pieces, CoverTheWhole) {
  for (const uint64_t size : {uint64_t{1}, 5 * kMiB - 1, 5 * kMiB, 5 * kMiB + 1, 100 * kMiB + 7}) {
    for (const unsigned connections : {1U, 3U, 16U}) {
      const Pieces pieces = Pieces::cut(size, connections, 5 * kMiB, 16 * kMiB, 10000);
      uint64_t at = 0;
      for (uint64_t i = 0; i < pieces.count(); ++i) {
        EXPECT_EQ(pieces.offset(i), at);
        EXPECT_GT(pieces.length(i), 0u);
        EXPECT_TRUE(i + 1 == pieces.count() || pieces.length(i) >= 5 * kMiB);
        at += pieces.length(i);
      }
      EXPECT_EQ(at, size);
    }
  }
  EXPECT_EQ(Pieces::cut(0, 4, 1, 1, 10).count(), 0u);
}

TEST(S3Pieces, KeepConnectionsBusyWithinTheLimits) {
  EXPECT_EQ(Pieces::cut(160 * kMiB, 16, 5 * kMiB, 16 * kMiB, 10000).piece_size, 10 * kMiB);
  EXPECT_EQ(Pieces::cut(20 * kMiB, 16, 5 * kMiB, 16 * kMiB, 10000).piece_size, 5 * kMiB);
  EXPECT_EQ(Pieces::cut(1000 * kMiB, 16, 5 * kMiB, 16 * kMiB, 10000).piece_size, 16 * kMiB);
  EXPECT_EQ(Pieces::cut(20 * kMiB, 1, 5 * kMiB, 1 * kMiB, 10000).piece_size, 5 * kMiB);
  const uint64_t huge = uint64_t{5} << 40;  // the largest object S3 has
  const Pieces pieces = Pieces::cut(huge, 16, 5 * kMiB, 16 * kMiB, 10000);
  EXPECT_LE(pieces.count(), 10000u);
  EXPECT_GE(pieces.count(), 9999u);
}

TEST(S3Pieces, MovesEachPieceOnce) {
  std::mutex mutex;
  std::multiset<uint64_t> moved;
  const Status status = move_pieces({1000, 7}, 8, PieceRetries::at_most(0),
                                    [&](uint64_t i, const std::atomic<bool>*) {
                                      const std::lock_guard lock(mutex);
                                      moved.insert(i);
                                      return Status();
                                    });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(moved.size(), 143u);
  EXPECT_EQ(std::set<uint64_t>(moved.begin(), moved.end()).size(), 143u);
}

TEST(S3Pieces, FirstFailureStopsTheOthers) {
  std::atomic<int> given_up{0};
  const Status status =
      move_pieces({100, 1}, 4, PieceRetries::at_most(0),
                  [&](uint64_t i, const std::atomic<bool>* stop) -> Status {
                    if (i == 2) return io_error("piece 2 broke");
                    while (!*stop) std::this_thread::yield();  // a transfer that would never end
                    ++given_up;
                    return cancelled("given up");
                  });
  EXPECT_FAILS(status, kIo, "piece 2 broke");
  EXPECT_LE(given_up, 3);
}

TEST(S3Pieces, SlotsLimitTransfersInProgress) {
  Slots slots(3);
  std::atomic<int> now{0}, most{0};
  const Status status =
      move_pieces({64, 1}, 8, PieceRetries::at_most(0), [&](uint64_t, const std::atomic<bool>*) {
        const Slots::Slot slot(&slots);
        const int count = ++now;
        for (int seen = most; count > seen && !most.compare_exchange_weak(seen, count);) {
        }
        std::this_thread::yield();
        --now;
        return Status();
      });
  EXPECT_TRUE(status.ok());
  EXPECT_LE(most, 3);
}

// Pauses are counted, not waited for.
PieceRetries retries_without_pauses(unsigned retries, std::atomic<int>* made) {
  PieceRetries out = PieceRetries::at_most(retries);
  out.clock.sleep = [made](double) { ++*made; };
  return out;
}

TEST(S3Pieces, RetriesAnUnavailablePieceAlone) {
  std::atomic<int> retries{0};
  std::vector<std::atomic<int>> calls(5);
  const Status status =
      move_pieces({50, 10}, 2, retries_without_pauses(6, &retries),
                  [&](uint64_t i, const std::atomic<bool>*) -> Status {
                    return ++calls[i] <= 2 && i == 3 ? unavailable("503") : Status();
                  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(retries, 2);
  for (size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i], i == 3 ? 3 : 1);
}

TEST(S3Pieces, LeavesPersistentFailuresToTheWholeTransfer) {
  std::atomic<int> retries{0}, calls{0};
  const auto move = [&](uint64_t, const std::atomic<bool>*) -> Status {
    ++calls;
    return unavailable("503");
  };
  EXPECT_EQ(move_pieces({50, 10}, 1, retries_without_pauses(6, &retries), move).code(),
            Code::kUnavailable);
  EXPECT_EQ(calls, 4);
  calls = 0;  // a transfer of one piece
  EXPECT_EQ(move_pieces({10, 10}, 1, retries_without_pauses(6, &retries), move).code(),
            Code::kUnavailable);
  EXPECT_EQ(calls, 1);
  calls = 0;  // no retries are wanted
  EXPECT_EQ(move_pieces({50, 10}, 1, retries_without_pauses(0, &retries), move).code(),
            Code::kUnavailable);
  EXPECT_EQ(calls, 1);
}

TEST(S3Pieces, DoesNotRetryOtherFailures) {
  std::atomic<int> retries{0};
  const Status status = move_pieces(
      {50, 10}, 1, retries_without_pauses(6, &retries),
      [&](uint64_t, const std::atomic<bool>*) -> Status { return corruption("damaged"); });
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_EQ(retries, 0);
}

}  // namespace
}  // namespace deltawire::s3
