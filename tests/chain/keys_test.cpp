#include "chain/keys.h"

#include "chain/hop_records.h"
#include "chain/plan.h"
#include "made_chain.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

TEST(Keys, FilesAreMadeOnceAndKeptPrivate) {
  TempFolder folder;
  const fs::path key = folder.path() / "trainer";
  const std::string hex = make_key_files(key).value();
  EXPECT_EQ(fs::status(key).permissions(), fs::perms(0600));
  EXPECT_EQ(read_file(folder.path() / "trainer.pub"), "deltawire-public " + hex + "\n");
  EXPECT_FAILS(make_key_files(key), Code::kConflict, key.string());
  // A public key in the way: the private one is not left behind.
  folder.put("other.pub", "");
  EXPECT_FAILS(make_key_files(folder.path() / "other"), Code::kConflict);
  EXPECT_FALSE(fs::exists(folder.path() / "other"));
  EXPECT_NE(make_key_files(folder.path() / "second").value(), hex);
}

TEST(Keys, APrivateKeyThatOthersCanReadIsRefused) {
  TempFolder folder;
  const fs::path key = folder.path() / "k";
  ASSERT_TRUE(make_key_files(key).ok());
  ASSERT_TRUE(make_signer(key).ok());
  for (const int mode : {0640, 0604, 0660, 0666, 0620, 0601}) {
    fs::permissions(key, fs::perms(mode));
    EXPECT_FAILS(make_signer(key), Code::kInvalidArgument, key.string(), "chmod 600");
  }
}

TEST(Keys, FilesThatAreNotKeysAreNamed) {
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
    EXPECT_FAILS(make_signer(path), Code::kInvalidArgument, path.string());
    EXPECT_FAILS(make_verifier(path), Code::kInvalidArgument, path.string());
  }
  for (const int mode : {0644, 0600}) {  // what others may read is beside the point
    fs::permissions(folder.path() / "k.pub", fs::perms(mode));
    EXPECT_FAILS(make_signer(folder.path() / "k.pub"), Code::kInvalidArgument, "k.pub",
                 "this is a public key");
  }
  EXPECT_FAILS(make_verifier(folder.path() / "k"), Code::kInvalidArgument, "private");
}

// RFC 8032, section 7.1, test 3.
TEST(Keys, SignaturesAreEd25519) {
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
  testing::MadeChain made_;
  std::shared_ptr<MemoryStore> store_;
};

TEST_F(SignedChain, IsReadByThoseWhoTrustTheKey) {
  EXPECT_TRUE(read_with("mine.pub").ok());
  EXPECT_TRUE(read_with("both.pub").ok());
  EXPECT_TRUE(read_with("").ok());
  EXPECT_FAILS(read_with("yours.pub"), Code::kCorruption, "manifests/0000000000.json",
               "not trusted");
}

TEST_F(SignedChain, AForgedRecordIsRefusedThoughItsChecksumHolds) {
  const Manifest m = Chain::open(store_, {}).value().version(0).value().manifest;
  Manifest forged = m;
  forged.publisher = "forger";
  const std::string unsigned_text = serialise_manifest(forged, {}).value();
  ASSERT_TRUE(store_->put("manifests/0000000000.json", MemoryBody(unsigned_text)).ok());
  EXPECT_TRUE(read_with("").ok());
  EXPECT_FAILS(read_with("mine.pub"), Code::kCorruption, "signature", "got none");

  // The signature of another text.
  const Signature old = options("mine", "").sign("other").value();
  const std::string text = serialise_manifest(forged, [&](std::string_view) -> Result<Signature> {
                             return old;
                           }).value();
  ASSERT_TRUE(store_->put("manifests/0000000000.json", MemoryBody(text)).ok());
  EXPECT_FAILS(read_with("mine.pub"), Code::kCorruption, "does not hold");
  const Chain lenient = open_with_keys(store_, {{}, check_signatures_only()}).value();
  EXPECT_FAILS(lenient.version(0), Code::kCorruption, "does not hold");
}

TEST_F(SignedChain, APublisherDoesNotSignWhatItsReadersWouldRefuse) {
  EXPECT_FAILS(read_keys({.sign = path("mine"), .trust = path("yours.pub")}),
               Code::kInvalidArgument, "mine", "yours.pub");
  EXPECT_TRUE(read_keys({.sign = path("mine"), .trust = both_}).ok());
}

TEST_F(SignedChain, HopRecordsAreSignedAndCheckedToo) {
  const Chain chain = open_with_keys(store_, options("mine", "mine.pub")).value();
  const VersionRecord zero = chain.version(0).value();
  ASSERT_TRUE(store_->put("full/0000000000-cc/x", MemoryBody(std::string_view("abc"))).ok());
  ASSERT_TRUE(
      add_hop(chain, nullptr, zero, {{"full/0000000000-cc/x", 3, record_digest("abc")}}).ok());
  const auto names = list_hops(chain, 0, 9, 1).value();
  ASSERT_EQ(names.size(), 1U);
  EXPECT_TRUE(read_hop(chain, names[0]).ok());
  const Chain other = open_with_keys(store_, options("", "yours.pub")).value();
  EXPECT_FAILS(read_hop(other, names[0]), Code::kCorruption, "not trusted");
}

TEST_F(SignedChain, AHopRecordNeedsItsPartsInTheStore) {
  const Chain chain = open_with_keys(store_, options("mine", "")).value();
  const VersionRecord zero = chain.version(0).value();
  PartRef part{"full/0000000000-cc/x", 3, record_digest("abc")};
  EXPECT_EQ(add_hop(chain, nullptr, zero, {part}).code(), Code::kNotFound);
  ASSERT_TRUE(store_->put(part.name, MemoryBody(std::string_view("abcd"))).ok());
  EXPECT_FAILS(add_hop(chain, nullptr, zero, {part}), Code::kCorruption, part.name);
  part.size_bytes = 4;
  EXPECT_TRUE(add_hop(chain, nullptr, zero, {part}).ok());
  EXPECT_EQ(add_hop(chain, nullptr, zero, {part}).code(), Code::kConflict);
  part.name = "parts/x";
  EXPECT_EQ(add_hop(chain, nullptr, zero, {part}).code(), Code::kCorruption);
}

}  // namespace
}  // namespace deltawire::testing
