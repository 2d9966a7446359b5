#include "notify/engine.h"
#include "test_files.h"

namespace deltawire {
namespace {

using testing::is_failure;

std::string name_of(std::string_view spec) {
  auto engine = make_engine(spec, {});
  return engine.ok() ? (*engine)->name() : engine.status().to_string();
}

TEST(EngineSpec, NamesKindAndUrl) {
  EXPECT_EQ(name_of("sglang=http://10.0.0.7:30000"), "sglang=http://10.0.0.7:30000");
  EXPECT_EQ(name_of("sglang=http://10.0.0.7:30000/"), "sglang=http://10.0.0.7:30000");
  EXPECT_EQ(name_of("vllm=https://gpu-3.example/replica/a/"),
            "vllm=https://gpu-3.example/replica/a");
  EXPECT_EQ(name_of("vllm=http://[::1]:8000"), "vllm=http://[::1]:8000");
  EXPECT_EQ(name_of("exec=systemctl reload x=y"), "exec=systemctl reload x=y");
}

TEST(EngineSpec, SaysWhatIsWrong) {
  const auto failure = [](std::string_view spec) { return make_engine(spec, {}).status(); };
  const Code bad = Code::kInvalidArgument;
  EXPECT_TRUE(is_failure(failure(""), bad, "sglang=URL, vllm=URL or exec=COMMAND"));
  EXPECT_TRUE(is_failure(failure("http://host:1"), bad, "\"http\"", "sglang=URL"));
  EXPECT_TRUE(is_failure(failure("tgi=http://host:1"), bad, "\"tgi\"", "sglang=URL"));
  EXPECT_TRUE(is_failure(failure("sglang"), bad, "\"sglang=\" is missing: a URL"));
  EXPECT_TRUE(is_failure(failure("exec="), bad, "a command"));
  EXPECT_TRUE(is_failure(failure("sglang=host:30000"), bad, "http:// or https://"));
  EXPECT_TRUE(is_failure(failure("sglang=ftp://host"), bad, "http:// or https://"));
  EXPECT_TRUE(is_failure(failure("sglang=http://"), bad, "no host"));
  EXPECT_TRUE(is_failure(failure("sglang=http://:80"), bad, "no host"));
  EXPECT_TRUE(is_failure(failure("sglang=http:///x"), bad, "no host"));
  for (const char* port : {"", "0", "65536", "80x", "-1", "99999999999999"}) {
    EXPECT_TRUE(is_failure(failure(std::string("vllm=http://host:") + port), bad, "port")) << port;
  }
  EXPECT_TRUE(is_failure(failure("vllm=http://host/?a=b"), bad, "path prefix"));
  EXPECT_TRUE(is_failure(failure("vllm=http://host/#x"), bad, "path prefix"));
  EXPECT_TRUE(is_failure(failure("vllm=http://ho st"), bad, "character"));
  EXPECT_TRUE(is_failure(failure("vllm=http://host\r\nX: y"), bad, "character"));
}

TEST(EngineSpec, PasswordsAreRefusedAndNotRepeated) {
  for (const char* spec : {"sglang=http://user:hunter2@host:1", "other=http://user:hunter2@host:1",
                           "http://user:hunter2@host:1"}) {
    const Status status = make_engine(spec, {}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message().find("hunter2"), std::string::npos) << status.message();
  }
}

TEST(EngineSpec, AKeyThatWouldBeMoreThanOneHeaderIsRefused) {
  for (const std::string key :
       {"abc\n", "abc\r\nX-Admin: 1", "a\tb", " abc", "abc ", "a\x7f", "a\xc3\xa4"}) {
    for (const char* spec : {"sglang=http://h:1", "vllm=http://h:1"}) {
      EngineOptions options;
      options.api_key = Secret(key);
      const Status status = make_engine(spec, options).status();
      EXPECT_TRUE(is_failure(status, Code::kInvalidArgument, "DELTAWIRE_ENGINE_API_KEY"));
      EXPECT_EQ(status.message().find("abc"), std::string::npos) << status.message();
    }
  }
}

}  // namespace
}  // namespace deltawire
