#include "chain/chain.h"

#include "chain/hop_records.h"
#include "chain/keys.h"
#include "chain/names.h"
#include "chain/plan.h"
#include "support/test_chain.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

TEST(Chain, AllowsOneRunPerStore) {
  auto store = std::make_shared<MemoryStore>("x");
  EXPECT_FAILS(Chain::open(store, {}), kNotFound, "memory:x", "no run");
  const Chain chain = create_chain(store, {}, false).value();
  EXPECT_EQ(Chain::open(store, {}).value().run(), chain.run());
  EXPECT_EQ(create_chain(store, {}, false).status().code(), Code::kConflict);
  EXPECT_FALSE(chain.head().value().has_value());
}

TEST(Chain, FindsTheHeadFromAnyHint) {
  TestChain made;
  for (int i = 0; i < 40; ++i) made.add(10);
  EXPECT_EQ(made.chain.head().value(), 39U);
  for (const char* hint : {"0\n", "17\n", "38", "39\n", "40\n", "9999999999\n", "99999999999\n", "",
                           "x", "-1", "18446744073709551616"}) {
    ASSERT_TRUE(made.memory->put(kHeadName, MemoryBody(hint)).ok());
    EXPECT_EQ(made.chain.head().value(), 39U) << hint;
  }
  ASSERT_TRUE(made.memory->remove(kHeadName).ok());
  EXPECT_EQ(made.chain.head().value(), 39U);
}

TEST(Chain, FindsTheHeadBehindPrunedVersions) {
  TestChain made;
  for (int i = 0; i < 40; ++i) made.add(10);
  for (uint64_t v : {0, 1, 2, 3, 6, 7, 8, 9, 10}) {
    ASSERT_TRUE(made.memory->remove(manifest_name(v)).ok());
  }
  for (const char* hint : {"5", "4", "7", "0"}) {  // an old publisher's, late
    ASSERT_TRUE(made.memory->put(kHeadName, MemoryBody(hint)).ok());
    EXPECT_EQ(made.chain.head().value(), 39U) << hint;
  }
}

// A listing that does not show the newest objects yet.
TEST(Chain, FindsTheHeadWithAStaleListing) {
  TestChain made;
  for (int i = 0; i < 40; ++i) made.add(10);
  for (const uint64_t shown : {0, 1, 20, 39}) {
    made.hooks->after_list = [&](std::vector<ObjectInfo>* page) {
      std::erase_if(*page, [&](const ObjectInfo& object) {
        return version_of_manifest(object.name).value_or(0) >= shown;
      });
    };
    for (const char* hint : {"0", "10", "38", "39"}) {
      ASSERT_TRUE(made.memory->put(kHeadName, MemoryBody(hint)).ok());
      EXPECT_EQ(made.chain.head().value(), 39U) << shown << ", " << hint;
    }
  }
}

TEST(Chain, FindsTheNextVersionWithFourRequests) {
  TestChain made;
  for (int i = 0; i < 6; ++i) made.add(10);
  made.hooks->requests = 0;
  auto newest = made.chain.newest_after(5);
  ASSERT_TRUE(newest.ok()) << newest.status().to_string();
  EXPECT_EQ(newest->version, 5);
  EXPECT_FALSE(newest->record.has_value());
  EXPECT_EQ(made.hooks->requests, 4);
  made.hooks->requests = 0;
  newest = made.chain.newest_after(4);
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->version, 5);
  ASSERT_TRUE(newest->record.has_value());
  EXPECT_EQ(newest->record->digest, made.records[5].digest);
  EXPECT_EQ(made.hooks->requests, 4);
  for (const uint64_t known : {0, 1, 2, 3, 6, 7, 100}) {
    newest = made.chain.newest_after(known);
    ASSERT_TRUE(newest.ok());
    EXPECT_EQ(newest->version, 5) << known;
  }
}

TEST(Chain, FindsTheNextVersionWithStaleListings) {
  TestChain made;
  for (int i = 0; i < 6; ++i) made.add(10);
  for (size_t shown = 0; shown < 6; ++shown) {
    made.hooks->after_list = [&](std::vector<ObjectInfo>* page) {
      std::erase_if(*page, [&](const ObjectInfo& object) {
        return version_of_manifest(object.name).value_or(0) > shown;
      });
    };
    for (uint64_t known = 0; known < 6; ++known) {
      const auto newest = must(made.chain.newest_after(known));
      EXPECT_EQ(newest.version, 5) << known << ", " << shown;
    }
  }
}

TEST(Chain, FindsTheNextVersionBehindHolesAndDamage) {
  TestChain made;
  for (int i = 0; i < 8; ++i) made.add(10);
  for (int v = 2; v < 6; ++v) ASSERT_TRUE(made.memory->remove(manifest_name(v)).ok());
  for (const uint64_t known : {1, 3}) {  // pinned, and pruned itself
    const auto newest = must(made.chain.newest_after(known));
    EXPECT_EQ(newest.version, 7) << known;
  }
  ASSERT_TRUE(made.memory->put(manifest_name(7), MemoryBody("{}")).ok());
  const auto newest = must(made.chain.newest_after(6));
  EXPECT_EQ(newest.version, 7);
  EXPECT_FALSE(newest.record.has_value());
  made.hooks->before = [](std::string_view call, std::string_view) {
    return call == "list" ? unavailable("told so") : Status();
  };
  EXPECT_FAILS(made.chain.newest_after(6), kUnavailable);
}

TEST(Chain, CommitsEachVersionOnce) {
  TestChain made;
  made.add(10);
  Manifest mine = made.next(5, false), theirs = mine;
  theirs.publisher = "other:2";
  ASSERT_TRUE(commit_version(made.chain, theirs).ok());
  EXPECT_FAILS(commit_version(made.chain, mine).status, kConflict, "version 1", "other:2",
               "2026-11-15");
  // The same record again is a retry, not a race.
  EXPECT_TRUE(commit_version(made.chain, theirs).ok());
}

TEST(Chain, RejectsRecordsInTheWrongPlace) {
  TestChain made;
  for (int i = 0; i < 3; ++i) made.add(10);
  const std::string one = made.memory->get(manifest_name(1), 1 << 20).value();
  ASSERT_TRUE(made.memory->put(manifest_name(2), MemoryBody(one)).ok());
  EXPECT_FAILS(made.chain.version(2), kCorruption, "manifests/0000000002.json", "version 1");
  TestChain other;
  other.add(10);
  const std::string foreign = other.memory->get(manifest_name(0), 1 << 20).value();
  ASSERT_TRUE(made.memory->put(manifest_name(0), MemoryBody(foreign)).ok());
  EXPECT_FAILS(made.chain.version(0), kCorruption, other.chain.run());
  Manifest outside = made.next(5, false);
  for (const char* name : {"full/x", "parts", "manifests/0000000000.json", "../x", "parts/../x",
                           "/etc/passwd", "parts//x"}) {
    outside.parts[0].name = name;
    outside.version = 3;
    ASSERT_TRUE(
        made.memory->put(manifest_name(3), MemoryBody(serialise_manifest(outside, {}).value()))
            .ok());
    EXPECT_FAILS(made.chain.version(3), kCorruption) << name;
  }
}

TEST(Keys, CreatesFilesOnceAndPrivate) {
  TempFolder folder;
  const fs::path key = folder.path() / "trainer";
  const std::string hex = make_key_files(key).value();
  EXPECT_EQ(fs::status(key).permissions(), fs::perms(0600));
  EXPECT_EQ(read_file(folder.path() / "trainer.pub"), "deltawire-public " + hex + "\n");
  EXPECT_FAILS(make_key_files(key), kConflict, key.string());
  // An existing public key file: the new private key is removed again.
  folder.put("other.pub", "");
  EXPECT_FAILS(make_key_files(folder.path() / "other"), kConflict);
  EXPECT_FALSE(fs::exists(folder.path() / "other"));
  EXPECT_NE(make_key_files(folder.path() / "second").value(), hex);
}

TEST(Keys, RejectsAPrivateKeyOthersCanRead) {
  TempFolder folder;
  const fs::path key = folder.path() / "k";
  ASSERT_TRUE(make_key_files(key).ok());
  ASSERT_TRUE(make_signer(key).ok());
  for (const int mode : {0640, 0604, 0660, 0666, 0620, 0601}) {
    fs::permissions(key, fs::perms(mode));
    EXPECT_FAILS(make_signer(key), kInvalidArgument, key.string(), "chmod 600");
  }
}

TEST(Keys, ErrorsNameInvalidKeyFiles) {
  TempFolder folder;
  ASSERT_TRUE(make_key_files(folder.path() / "k").ok());
  const auto file = [&](const char* name, const std::string& text) {
    const fs::path path = folder.put(name, text);
    fs::permissions(path, fs::perms(0600));
    return path;
  };
  EXPECT_EQ(make_signer(folder.path() / "none").status().code(), Code::kNotFound);
  EXPECT_EQ(make_verifier(folder.path() / "none").status().code(), Code::kNotFound);
  for (const char* text : {"", "x", "deltawire-private 12", "deltawire-private "}) {
    const fs::path path = file("bad", text);
    EXPECT_FAILS(make_signer(path), kInvalidArgument, path.string());
    EXPECT_FAILS(make_verifier(path), kInvalidArgument, path.string());
  }
  for (const int mode : {0644, 0600}) {  // what others may read is beside the point
    fs::permissions(folder.path() / "k.pub", fs::perms(mode));
    EXPECT_FAILS(make_signer(folder.path() / "k.pub"), kInvalidArgument, "k.pub",
                 "this is a public key");
  }
  EXPECT_FAILS(make_verifier(folder.path() / "k"), kInvalidArgument, "private");
}

// RFC 8032, section 7.1, test 3.
TEST(Keys, ProducesEd25519Signatures) {
  TempFolder folder;
  const fs::path key = folder.put(
      "k", "deltawire-private c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7\n");
  fs::permissions(key, fs::perms(0600));
  const Signature signature = make_signer(key).value()("\xaf\x82").value();
  EXPECT_EQ(signature.key, "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025");
  EXPECT_EQ(signature.bytes,
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
            "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a");
}

class SignedChain : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"mine", "yours"}) ASSERT_TRUE(make_key_files(path(name)).ok());
    both_ = folder_.put(
        "both.pub", "# rotated\n\n" + read_file(path("yours.pub")) + read_file(path("mine.pub")));
    store_ = std::make_shared<MemoryStore>();
    Chain chain = create_chain(store_, options("mine", ""), false).value();
    Manifest m = made_.next(10, true);
    m.run = chain.run();
    m.schema = put_schema(chain, {{{"w", DType::kU8, {1}}}}).value();
    ASSERT_TRUE(commit_version(chain, m).ok());
  }

  fs::path path(const std::string& name) const { return folder_.path() / name; }
  ChainKeys options(const std::string& sign, const std::string& trust) const {
    const auto file = [&](const std::string& name) {
      return name.empty() ? fs::path() : path(name);
    };
    return read_keys({.sign = file(sign), .trust = file(trust)}).value();
  }
  Status read_with(const std::string& trust) const {
    return open_with_keys(store_, options("", trust)).value().version(0).status();
  }

  TempFolder folder_;
  fs::path both_;
  testing::TestChain made_;
  std::shared_ptr<MemoryStore> store_;
};

TEST_F(SignedChain, IsReadableWithATrustedKey) {
  EXPECT_TRUE(read_with("mine.pub").ok());
  EXPECT_TRUE(read_with("both.pub").ok());
  EXPECT_TRUE(read_with("").ok());
  EXPECT_FAILS(read_with("yours.pub"), kCorruption, "manifests/0000000000.json", "not trusted");
}

TEST_F(SignedChain, RejectsForgedRecordsWithValidChecksums) {
  const Manifest m = Chain::open(store_, {}).value().version(0).value().manifest;
  Manifest forged = m;
  forged.publisher = "forger";
  const std::string unsigned_text = serialise_manifest(forged, {}).value();
  ASSERT_TRUE(store_->put("manifests/0000000000.json", MemoryBody(unsigned_text)).ok());
  EXPECT_TRUE(read_with("").ok());
  EXPECT_FAILS(read_with("mine.pub"), kCorruption, "signature", "got none");

  // A signature of another text.
  const Signature old = options("mine", "").sign("other").value();
  const std::string text = serialise_manifest(forged, [&](std::string_view) -> Result<Signature> {
                             return old;
                           }).value();
  ASSERT_TRUE(store_->put("manifests/0000000000.json", MemoryBody(text)).ok());
  EXPECT_FAILS(read_with("mine.pub"), kCorruption, "signature: invalid");
  const Chain lenient = open_with_keys(store_, {{}, check_signatures_only()}).value();
  EXPECT_FAILS(lenient.version(0), kCorruption, "signature: invalid");
}

TEST_F(SignedChain, PublisherMustTrustItsOwnKey) {
  EXPECT_FAILS(read_keys({.sign = path("mine"), .trust = path("yours.pub")}), kInvalidArgument,
               "mine", "yours.pub");
  EXPECT_TRUE(read_keys({.sign = path("mine"), .trust = both_}).ok());
}

TEST_F(SignedChain, SignsAndVerifiesHopRecords) {
  const Chain chain = open_with_keys(store_, options("mine", "mine.pub")).value();
  const VersionRecord zero = chain.version(0).value();
  ASSERT_TRUE(store_->put("full/0000000000-cc/x", MemoryBody("abc")).ok());
  ASSERT_TRUE(
      add_hop(chain, nullptr, zero, {{"full/0000000000-cc/x", 3, record_digest("abc")}}).ok());
  const auto names = list_hops(chain, 0, 9, 1).value();
  ASSERT_EQ(names.size(), 1U);
  EXPECT_TRUE(read_hop(chain, names[0]).ok());
  const Chain other = open_with_keys(store_, options("", "yours.pub")).value();
  EXPECT_FAILS(read_hop(other, names[0]), kCorruption, "not trusted");
}

TEST_F(SignedChain, HopRecordsNeedTheirPartsInTheStore) {
  const Chain chain = open_with_keys(store_, options("mine", "")).value();
  const VersionRecord zero = chain.version(0).value();
  PartRef part{"full/0000000000-cc/x", 3, record_digest("abc")};
  EXPECT_EQ(add_hop(chain, nullptr, zero, {part}).code(), Code::kNotFound);
  ASSERT_TRUE(store_->put(part.name, MemoryBody("abcd")).ok());
  EXPECT_FAILS(add_hop(chain, nullptr, zero, {part}), kCorruption, part.name);
  part.size_bytes = 4;
  EXPECT_TRUE(add_hop(chain, nullptr, zero, {part}).ok());
  EXPECT_EQ(add_hop(chain, nullptr, zero, {part}).code(), Code::kConflict);
  part.name = "parts/x";
  EXPECT_EQ(add_hop(chain, nullptr, zero, {part}).code(), Code::kCorruption);
}

}  // namespace
}  // namespace deltawire::testing
