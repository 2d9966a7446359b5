// Signatures that AWS published: the test suite of Signature Version 4, and the examples of "Amazon
// S3: Authenticating Requests (AWS Signature Version 4)".
#include "store/s3/sigv4.h"

#include "test_files.h"

namespace deltawire::s3 {
namespace {

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

TEST(S3SigV4, TheSuite) {
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

// The signature alone: the examples of S3.
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

TEST(S3SigV4, TheExamplesOfS3) {
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

TEST(S3SigV4, Encoding) {
  const std::string all = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  EXPECT_EQ(percent_encode(all, false), all);
  EXPECT_EQ(percent_encode("a/b c+d%", false), "a%2Fb%20c%2Bd%25");
  EXPECT_EQ(percent_encode("a/b c+d%", true), "a/b%20c%2Bd%25");
  EXPECT_EQ(canonical_query({{"b", "2"}, {"a b", "="}, {"a", ""}}), "a=&a%20b=%3D&b=2");
  EXPECT_EQ(amz_time(1440938160), "20150830T123600Z");
}

}  // namespace
}  // namespace deltawire::s3
