#include "store/s3/credentials.h"

#include "s3_environment.h"
#include "s3_scripted_server.h"
#include "test_files.h"

namespace deltawire::s3 {
namespace {

using deltawire::testing::Environment;
using deltawire::testing::is_failure;
using deltawire::testing::reply;
using deltawire::testing::Reply;
using deltawire::testing::ScriptedServer;
using deltawire::testing::SeenRequest;
using deltawire::testing::TempFolder;

std::string shown(const Credentials& c) {
  return c.access_key + " " + c.secret_key + " " + c.session_token;
}

Result<std::unique_ptr<CredentialsSource>> find() {
  return CredentialsSource::find("eu-north-1", "");
}

std::string shown(const Result<Credentials>& c) {
  return c.ok() ? shown(*c) : c.status().to_string();
}

std::string found() {
  const auto source = find();
  return source.ok() ? shown((*source)->current()) : source.status().to_string();
}

// Starts without keys, in a home folder that does not exist.
class S3Credentials : public ::testing::Test {
 protected:
  void set(const char* name, const std::optional<std::string>& value) {
    environment_.set(name, value);
  }
  // Writes a file and sets a variable to its path.
  void set_file(const char* variable, const std::string& text) {
    set(variable, folder_.put(variable, text).string());
  }
  // A profile whose credential process prints the file keys.json.
  void set_process(const std::string& section) {
    set_file("AWS_CONFIG_FILE", "[" + section + "]\ncredential_process = cat " +
                                    (folder_.path() / "keys.json").string() + "\n");
  }
  Environment environment_;
  TempFolder folder_;
};

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

TEST_F(S3Credentials, ParsesSectionsOfTheFile) {
  EXPECT_EQ(parse_section(kFile, "default")->at("aws_access_key_id"), "A1");
  EXPECT_EQ(parse_section(kFile, "default")->at("aws_secret_access_key"), "S/1+=");
  EXPECT_EQ(parse_section(kFile, "work")->at("aws_session_token"), "T2");
  EXPECT_FALSE(parse_section(kFile, "play").has_value());
  EXPECT_FALSE(parse_section("", "default").has_value());
}

TEST_F(S3Credentials, SearchesTheEnvironmentFirst) {
  std::filesystem::create_directory(folder_.path() / ".aws");
  folder_.put(".aws/credentials", kFile);
  set("HOME", folder_.path().string());
  EXPECT_EQ(found(), "A1 S/1+= ");
  set("AWS_PROFILE", "work");
  EXPECT_EQ(found(), "A2 S2 T2");
  environment_.set_keys("A0", "S0");
  EXPECT_EQ(found(), "A0 S0 ");
  set("AWS_SESSION_TOKEN", "T0");
  EXPECT_EQ(found(), "A0 S0 T0");
}

TEST_F(S3Credentials, StoreUrlMayNameAProfile) {
  set_file("AWS_SHARED_CREDENTIALS_FILE", kFile);
  set_file("AWS_CONFIG_FILE", "");
  environment_.set_keys("A0", "S0");
  EXPECT_EQ(shown(must(CredentialsSource::find("eu-north-1", "", "work"))->current()), "A2 S2 T2");
  EXPECT_FAILS(CredentialsSource::find("eu-north-1", "", "typo"), kInvalidArgument, "typo");
}

TEST_F(S3Credentials, WithoutCredentialsTheErrorListsAllSources) {
  EXPECT_FAILS(find(), kInvalidArgument, "no S3 credentials",
               "environment: AWS_ACCESS_KEY_ID is not set",
               "web identity: AWS_WEB_IDENTITY_TOKEN_FILE is not set",
               "shared credentials file: /nonexistent/.aws/credentials: no such file",
               "configuration file: profile \"default\": /nonexistent/.aws/config",
               "container: neither AWS_CONTAINER_CREDENTIALS_RELATIVE_URI nor",
               "instance metadata: AWS_EC2_METADATA_DISABLED is set");
  set_file("AWS_SHARED_CREDENTIALS_FILE", "[default]\naws_access_key_id=A\n");  // half a pair
  EXPECT_FAILS(find(), kInvalidArgument, "both be set", "[default]");
  set("AWS_ACCESS_KEY_ID", "A0");
  EXPECT_FAILS(find(), kInvalidArgument, "AWS_SECRET_ACCESS_KEY", "both");
}

TEST_F(S3Credentials, RefusesKeysThatBreakAHeaderWithoutPrintingThem) {
  for (const char* bad : {"with space", "line\nbreak", "tab\t", "\x7f", "\xc3\xa4"}) {
    environment_.set_keys("A0", bad);
    const Status status = find().status();
    EXPECT_FAILS(status, kInvalidArgument, "AWS_SECRET_ACCESS_KEY");
    EXPECT_FALSE(contains(status.message(), bad));
  }
}

TEST_F(S3Credentials, ReadsAChangedFileAgain) {
  const char* const name = "AWS_SHARED_CREDENTIALS_FILE";
  const auto write = [&](const std::string& text) { folder_.put(name, text); };
  set_file(name, "[default]\naws_access_key_id=A1\naws_secret_access_key=S1\n");
  const auto source = must(find());
  EXPECT_EQ(shown(source->current()), "A1 S1 ");
  write("[default]\naws_access_key_id=A22\naws_secret_access_key=S22\naws_session_token=T22\n");
  EXPECT_EQ(shown(source->current()), "A22 S22 T22");
  write("[default]\naws_access_key_id=A333\n");  // half-written: what was known stays
  EXPECT_EQ(shown(source->current()), "A22 S22 T22");
  std::filesystem::remove(folder_.path() / name);
  EXPECT_EQ(shown(source->current()), "A22 S22 T22");
  write("[default]\naws_access_key_id=A4444\naws_secret_access_key=S4\n");
  EXPECT_EQ(shown(source->current()), "A4444 S4 ");
}

// ---- profiles

TEST_F(S3Credentials, RunsCredentialProcessAgainWhenKeysExpire) {
  const auto keys = [&](const std::string& name, const std::string& expiration) {
    folder_.put("keys.json",
                R"({"Version": 1, "AccessKeyId": ")" + name +
                    R"(", "SecretAccessKey": "S", "SessionToken": "T", "Expiration": ")" +
                    expiration + "\"}");
  };
  keys("A1", "2001-01-01T00:00:00+00:00");
  set_process("profile work");
  set("AWS_PROFILE", "work");
  const auto source = must(find());
  keys("A2", "2001-01-01T00:00:00Z");
  EXPECT_EQ(shown(source->current()), "A2 S T");
  keys("A3", "2999-01-01T00:00:00.5Z");
  EXPECT_EQ(shown(source->current()), "A3 S T");
  keys("A4", "2999-01-01T00:00:00Z");  // A3 are good until then
  EXPECT_EQ(shown(source->current()), "A3 S T");
  // The server has rejected them.
  EXPECT_TRUE(source->renew(source->known()));
  EXPECT_EQ(shown(source->current()), "A4 S T");
  EXPECT_FALSE(source->renew(source->known()));
}

TEST_F(S3Credentials, ExpiredKeysWithoutReplacementAreAnError) {
  const auto json = folder_.put(
      "keys.json",
      R"({"AccessKeyId": "A", "SecretAccessKey": "hush", "Expiration": "2001-01-01T00:00:00Z"})");
  set_process("default");
  const auto source = must(find());
  std::filesystem::remove(json);
  EXPECT_FAILS(source->current(), kIo, "configuration file",
               "profile \"default\", credential_process", "status 1");
  for (const char* bad :
       {"", "hush", "[]", R"({"AccessKeyId": "hush"})",
        R"({"AccessKeyId": "A", "SecretAccessKey": "hush\n"})",
        R"({"AccessKeyId": "A", "SecretAccessKey": "hush", "Expiration": "x"})"}) {
    folder_.put("keys.json", bad);
    const Status status = find().status();
    EXPECT_TRUE(is_failure(status, status.code(), "credential_process")) << bad;
    EXPECT_FALSE(contains(status.message(), "hush"));
  }
}

TEST_F(S3Credentials, ReportsUnsupportedProfiles) {
  const auto of = [&](const std::string& config) {
    set_file("AWS_CONFIG_FILE", config);
    return find().status();
  };
  EXPECT_FAILS(of("[default]\nsso_session = corp\n"), kUnsupported, "SSO",
               "credential_process = aws configure export-credentials");
  EXPECT_FAILS(of("[default]\nrole_arn = r\n"), kInvalidArgument, "needs source_profile");
  EXPECT_FAILS(of("[default]\nrole_arn = r\nmfa_serial = m\nsource_profile = x\n"), kUnsupported,
               "mfa_serial");
  EXPECT_FAILS(of("[default]\nrole_arn = r\nsource_profile = a\n"
                  "[profile a]\nrole_arn = r\nsource_profile = default\n"),
               kInvalidArgument, "refers back to itself");
  EXPECT_FAILS(of("[default]\nregion = x\n"), kInvalidArgument, "no S3 credentials",
               "neither keys nor credential_process");
  set("AWS_PROFILE", "typo");
  EXPECT_FAILS(of("[default]\naws_access_key_id=A\naws_secret_access_key=S\n"), kInvalidArgument,
               "profile \"typo\"", "no section [profile typo]");
}

// ---- servers

constexpr char kStsAnswer[] =
    "<R><Result><Credentials><AccessKeyId>A7</AccessKeyId><SecretAccessKey>S7</SecretAccessKey>"
    "<SessionToken>T7</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration></Credentials>"
    "</Result></R>";

TEST_F(S3Credentials, WebIdentityAssumesItsRole) {
  ScriptedServer sts([](const SeenRequest&, size_t) { return reply(200, kStsAnswer); });
  set_file("AWS_WEB_IDENTITY_TOKEN_FILE", "to/ken\n");
  EXPECT_FAILS(find(), kInvalidArgument, "AWS_ROLE_ARN is not");
  set("AWS_ROLE_ARN", "arn:aws:iam::1:role/x");
  set("AWS_ROLE_SESSION_NAME", "me");
  set("AWS_ENDPOINT_URL_STS", sts.endpoint());
  EXPECT_EQ(found(), "A7 S7 T7");
  const SeenRequest seen = sts.seen().at(0);
  EXPECT_EQ(seen.method + " " + seen.target, "POST /");
  EXPECT_EQ(seen.body,
            "Action=AssumeRoleWithWebIdentity&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fx&"
            "RoleSessionName=me&Version=2011-06-15&WebIdentityToken=to%2Fken");
  EXPECT_FALSE(seen.has("authorization"));
}

TEST_F(S3Credentials, RefusedWebIdentityStopsTheSearch) {
  int status = 403;
  ScriptedServer sts([&](const SeenRequest&, size_t) {
    return reply(status,
                 "<E><Error><Code>AccessDenied</Code><Message>not to/ken\n</Message>"
                 "</Error></E>");
  });
  set_file("AWS_WEB_IDENTITY_TOKEN_FILE", "to/ken");
  set("AWS_ROLE_ARN", "r");
  set("AWS_ENDPOINT_URL_STS", sts.endpoint());
  set_file("AWS_SHARED_CREDENTIALS_FILE", kFile);
  const Status refused = find().status();
  EXPECT_FAILS(refused, kIo, "web identity", sts.endpoint(), "HTTP 403 AccessDenied", "not ***");
  EXPECT_FALSE(contains(refused.message(), "to/ken"));
  status = 503;
  EXPECT_FAILS(find(), kUnavailable, "HTTP 503");
}

TEST_F(S3Credentials, AssumesAProfilesRoleWithItsSourceKeys) {
  ScriptedServer sts([](const SeenRequest&, size_t) { return reply(200, kStsAnswer); });
  set("AWS_ENDPOINT_URL_STS", sts.endpoint());
  set_file("AWS_SHARED_CREDENTIALS_FILE", kFile);
  set_file("AWS_CONFIG_FILE",
           "[profile up]\nrole_arn = r\nsource_profile = work\nexternal_id = e\n"
           "role_session_name = s\n");
  set("AWS_PROFILE", "up");
  EXPECT_EQ(found(), "A7 S7 T7");
  const SeenRequest seen = sts.seen().at(0);
  EXPECT_EQ(seen.body,
            "Action=AssumeRole&ExternalId=e&RoleArn=r&RoleSessionName=s&Version=2011-06-15");
  EXPECT_EQ(seen.headers.at("authorization").find("AWS4-HMAC-SHA256 Credential=A2/"), 0u);
  EXPECT_TRUE(contains(seen.headers.at("authorization"), "/eu-north-1/sts/aws4_request"));
  EXPECT_EQ(seen.headers.at("x-amz-security-token"), "T2");
}

Reply json_keys(const std::string& name) {
  return reply(200, R"({"Code": "Success", "AccessKeyId": ")" + name +
                        R"(", "SecretAccessKey": "S", "Token": "T",
                            "Expiration": "2001-01-01T00:00:00Z"})");
}

TEST_F(S3Credentials, SendsTheTokenToAContainerEndpoint) {
  ScriptedServer server(
      [](const SeenRequest&, size_t number) { return json_keys("A" + std::to_string(number)); });
  set("AWS_CONTAINER_CREDENTIALS_FULL_URI", server.endpoint() + "/creds?x=1");
  set("http_proxy", "http://127.0.0.1:1");  // is not for this
  EXPECT_EQ(found(), "A1 S T");             // over at once: asked twice
  EXPECT_EQ(server.seen().at(0).target, "/creds?x=1");
  EXPECT_FALSE(server.seen().at(0).has("authorization"));
  set("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Basic abc");
  EXPECT_EQ(found(), "A3 S T");
  EXPECT_EQ(server.seen().back().headers.at("authorization"), "Basic abc");
  set_file("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "def\n");
  EXPECT_EQ(found(), "A5 S T");
  EXPECT_EQ(server.seen().back().headers.at("authorization"), "def");
  folder_.put("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "d\r\nx: y");
  EXPECT_FAILS(find(), kInvalidArgument, "_TOKEN_FILE", "a token may not contain");
}

TEST_F(S3Credentials, DoesNotSendTheContainerTokenUnencrypted) {
  set("AWS_CONTAINER_AUTHORIZATION_TOKEN", "hush");
  for (const char* url :
       {"http://example.com/", "http://127.0.0.1.example.com/", "ftp://127.0.0.1/",
        "http://127.0.0.1@example.com/", "http://user@127.0.0.1/"}) {
    set("AWS_CONTAINER_CREDENTIALS_FULL_URI", url);
    const Status status = find().status();
    EXPECT_FAILS(status, kInvalidArgument, "AWS_CONTAINER_CREDENTIALS_FULL_URI") << url;
    EXPECT_FALSE(contains(status.message(), "hush"));
  }
}

TEST_F(S3Credentials, FetchesATokenBeforeInstanceMetadata) {
  ScriptedServer server([](const SeenRequest& request, size_t number) {
    if (request.method == "PUT") return reply(200, "tok");
    if (request.target.ends_with("/")) return reply(200, "my-role\n");
    return json_keys("A" + std::to_string(number));
  });
  set("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.endpoint() + "/");
  EXPECT_FAILS(find(), kInvalidArgument, "AWS_EC2_METADATA_DISABLED");
  set("AWS_EC2_METADATA_DISABLED", std::nullopt);
  EXPECT_EQ(found(), "A5 S T");
  const auto seen = server.seen();
  EXPECT_EQ(seen[0].method + " " + seen[0].target, "PUT /latest/api/token");
  EXPECT_EQ(seen[0].headers.at("x-aws-ec2-metadata-token-ttl-seconds"), "21600");
  EXPECT_EQ(seen[1].target, "/latest/meta-data/iam/security-credentials/");
  EXPECT_EQ(seen[2].target, "/latest/meta-data/iam/security-credentials/my-role");
  EXPECT_EQ(seen[2].headers.at("x-aws-ec2-metadata-token"), "tok");
}

TEST_F(S3Credentials, MachineOutsideEc2HasNoCredentials) {
  set("AWS_EC2_METADATA_DISABLED", std::nullopt);
  set("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1");
  EXPECT_FAILS(find(), kInvalidArgument, "no S3 credentials",
               "instance metadata: http://127.0.0.1:1");
  ScriptedServer other([](const SeenRequest&, size_t) { return reply(404); });
  set("AWS_EC2_METADATA_SERVICE_ENDPOINT", other.endpoint());
  EXPECT_FAILS(find(), kInvalidArgument, "gives no token (HTTP 404)");
  ScriptedServer roleless([](const SeenRequest& request, size_t) {
    return request.method == "PUT" ? reply(200, "tok") : reply(404);
  });
  set("AWS_EC2_METADATA_SERVICE_ENDPOINT", roleless.endpoint());
  EXPECT_FAILS(find(), kInvalidArgument, "the instance has no role");
}

TEST_F(S3Credentials, FindsTheDefaultRegion) {
  EXPECT_EQ(default_region(), "us-east-1");
  set("AWS_DEFAULT_REGION", "eu-west-1");
  EXPECT_EQ(default_region(), "eu-west-1");
  set("AWS_REGION", "eu-west-2");
  EXPECT_EQ(default_region(), "eu-west-2");
}

}  // namespace
}  // namespace deltawire::s3
