#include "cli/shared_options.h"

#include "test_files.h"

namespace deltawire::cli {
namespace {

// What a command line makes of the defaults; the complaint in `*error` when it is refused.
StoreOptions parse(std::vector<std::string> words, std::string* error = nullptr) {
  Command app;
  StoreOptions options;
  add_store_options(&app, &options);
  const Parsed parsed = app.parse(std::move(words));
  if (error != nullptr) {
    *error = parsed.text;
  } else {
    EXPECT_EQ(parsed.text, "");
  }
  return options;
}

std::string complaint(const std::vector<std::string>& words) {
  std::string error;
  parse(words, &error);
  return error;
}

}  // namespace

TEST(StoreOptions, DefaultsStay) {
  const StoreOptions plain, parsed = parse({});
  EXPECT_EQ(parsed.retries, plain.retries);
  EXPECT_EQ(parsed.connections, plain.connections);
  EXPECT_EQ(parsed.call_timeout_seconds, plain.call_timeout_seconds);
  EXPECT_EQ(parsed.max_bytes_per_second, 0u);
  EXPECT_FALSE(parsed.virtual_host);
  EXPECT_FALSE(parsed.wrap);
}

TEST(StoreOptions, EachIsTaken) {
  const StoreOptions options =
      parse({"--endpoint", "https://host:9000", "--region", "eu-1", "--virtual-host", "--ca-file",
             "a.pem", "--connections", "4", "--retries", "0", "--rate-limit", "100MB/s",
             "--timeout", "2.5", "--inject", "slow:ms=5,tear:n=1"});
  EXPECT_EQ(options.endpoint, "https://host:9000");
  EXPECT_EQ(options.region, "eu-1");
  EXPECT_TRUE(options.virtual_host);
  EXPECT_EQ(options.ca_file, "a.pem");
  EXPECT_EQ(options.connections, 4u);
  EXPECT_EQ(options.retries, 0u);
  EXPECT_EQ(options.max_bytes_per_second, 100'000'000u);
  EXPECT_EQ(options.call_timeout_seconds, 2.5);
  EXPECT_TRUE(options.wrap);
  EXPECT_EQ(parse({"--rate-limit", "10MiB"}).max_bytes_per_second, uint64_t{10} << 20);
}

TEST(StoreOptions, BadValuesAreRefused) {
  EXPECT_TRUE(contains(complaint({"--rate-limit", "fast"}), "\"fast\" is not a size"));
  EXPECT_TRUE(contains(complaint({"--rate-limit", "0"}), "--rate-limit"));
  EXPECT_TRUE(contains(complaint({"--connections", "0"}), "--connections"));
  EXPECT_TRUE(contains(complaint({"--retries", "-1"}), "--retries"));
  EXPECT_TRUE(contains(complaint({"--timeout", "0"}), "--timeout"));
}

}  // namespace deltawire::cli
