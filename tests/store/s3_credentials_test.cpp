#include "store/s3/credentials.h"

#include <gtest/gtest.h>

#include "s3_environment.h"
#include "test_files.h"

namespace deltawire::s3 {
namespace {

using deltawire::testing::Environment;
using deltawire::testing::is_failure;
using deltawire::testing::TempFolder;

std::string shown(const Credentials& c) {
  return c.access_key + " " + c.secret_key + " " + c.session_token;
}

std::string found() {
  const auto source = CredentialsSource::find();
  return source.ok() ? shown((*source)->current()) : source.status().to_string();
}

constexpr char kFile[] =
    "# a comment = x\n"
    "[default]\r\n"
    "aws_access_key_id = A1\r\n"
    "  aws_secret_access_key=S/1+=\n"
    "; another\n"
    "region = elsewhere\n"
    "no equals sign\n"
    "\n"
    "[ work ]\n"
    "aws_access_key_id=A2\n"
    "aws_secret_access_key=S2\n"
    "aws_session_token=T2";

TEST(S3Credentials, SectionsOfTheFile) {
  EXPECT_EQ(shown(*parse_credentials(kFile, "default")), "A1 S/1+= ");
  EXPECT_EQ(shown(*parse_credentials(kFile, "work")), "A2 S2 T2");
  EXPECT_TRUE(is_failure(parse_credentials(kFile, "play").status(), Code::kNotFound, "[play]"));
  EXPECT_TRUE(is_failure(parse_credentials("", "default").status(), Code::kNotFound));
  EXPECT_TRUE(is_failure(parse_credentials("[default]\naws_access_key_id=A\n", "default").status(),
                         Code::kInvalidArgument, "both be set"));
}

TEST(S3Credentials, EnvironmentComesFirst) {
  Environment environment;
  TempFolder folder;
  environment.set("AWS_SHARED_CREDENTIALS_FILE", folder.put("credentials", kFile).string());
  EXPECT_EQ(found(), "A1 S/1+= ");
  environment.set("AWS_PROFILE", "work");
  EXPECT_EQ(found(), "A2 S2 T2");
  environment.set_keys("A0", "S0");
  EXPECT_EQ(found(), "A0 S0 ");
  environment.set("AWS_SESSION_TOKEN", "T0");
  EXPECT_EQ(found(), "A0 S0 T0");
}

TEST(S3Credentials, FileInTheHomeFolder) {
  Environment environment;
  TempFolder folder;
  std::filesystem::create_directory(folder.path() / ".aws");
  folder.put(".aws/credentials", kFile);
  environment.set("HOME", folder.path().string());
  EXPECT_EQ(found(), "A1 S/1+= ");
}

TEST(S3Credentials, NoneSaysWhereTheyWereLookedFor) {
  Environment environment;
  EXPECT_TRUE(is_failure(CredentialsSource::find().status(), Code::kInvalidArgument,
                         "no S3 credentials", "AWS_ACCESS_KEY_ID",
                         "/nonexistent/.aws/credentials"));
  environment.set("AWS_ACCESS_KEY_ID", "A0");
  EXPECT_TRUE(is_failure(CredentialsSource::find().status(), Code::kInvalidArgument,
                         "AWS_SECRET_ACCESS_KEY", "both"));
}

TEST(S3Credentials, KeysThatWouldBreakAHeaderAreRefusedUnseen) {
  Environment environment;
  for (const char* bad : {"with space", "line\nbreak", "tab\t", "\x7f", "\xc3\xa4"}) {
    environment.set_keys("A0", bad);
    const Status status = CredentialsSource::find().status();
    EXPECT_TRUE(is_failure(status, Code::kInvalidArgument, "AWS_SECRET_ACCESS_KEY"));
    EXPECT_EQ(status.message().find(bad), std::string::npos);
  }
}

TEST(S3Credentials, AChangedFileIsReadAgain) {
  Environment environment;
  TempFolder folder;
  const auto write = [&](const std::string& text) { folder.put("credentials", text); };
  write("[default]\naws_access_key_id=A1\naws_secret_access_key=S1\n");
  environment.set("AWS_SHARED_CREDENTIALS_FILE", (folder.path() / "credentials").string());
  const auto source = CredentialsSource::find();
  ASSERT_TRUE(source.ok()) << source.status().to_string();
  EXPECT_EQ(shown((*source)->current()), "A1 S1 ");
  write("[default]\naws_access_key_id=A22\naws_secret_access_key=S22\naws_session_token=T22\n");
  EXPECT_EQ(shown((*source)->current()), "A22 S22 T22");
  write("[default]\naws_access_key_id=A333\n");  // half-written: what was known stays
  EXPECT_EQ(shown((*source)->current()), "A22 S22 T22");
  std::filesystem::remove(folder.path() / "credentials");
  EXPECT_EQ(shown((*source)->current()), "A22 S22 T22");
  write("[default]\naws_access_key_id=A4444\naws_secret_access_key=S4\n");
  EXPECT_EQ(shown((*source)->current()), "A4444 S4 ");
}

TEST(S3Credentials, Region) {
  Environment environment;
  EXPECT_EQ(default_region(), "us-east-1");
  environment.set("AWS_DEFAULT_REGION", "eu-west-1");
  EXPECT_EQ(default_region(), "eu-west-1");
  environment.set("AWS_REGION", "eu-west-2");
  EXPECT_EQ(default_region(), "eu-west-2");
}

}  // namespace
}  // namespace deltawire::s3
