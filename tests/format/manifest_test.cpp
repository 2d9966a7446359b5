#include "format/manifest.h"

#include "test_files.h"

namespace deltawire::testing {
namespace {

Digest sha(std::string_view text) { return record_digest(text); }
Digest sum(std::string_view text) {
  return digest_of(DigestKind::kSum128, testing::as_bytes(text));
}
Digest xxh(std::string_view text) {
  return digest_of(DigestKind::kXxh3_128, testing::as_bytes(text));
}

Manifest sample() {
  Manifest m{.run = std::string(32, 'a'),
             .version = 12,
             .base = 11,
             .parent = sha("parent"),
             .created = "2026-11-15T05:36:24Z",
             .publisher = "host:1 \"quoted\""};
  m.parts = {{"parts/0000000012-ab/part-00000.safetensors", 100, sha("0")},
             {"parts/0000000012-ab/part-00001.safetensors", 23, sha("1")}};
  m.files = {{"config.json", 5, sha("config"), "0000000003-ef"},
             {"tokenizer – v2.json", 6, sha("tokenizer"), "0000000012-ab"}};
  m.schema = {"schemas/x.json", 7, sha("schema")};
  m.digests = {sum("a"), sum("b"), sum("c")};
  m.boxes["w\n"] = {{{{0, 0}, {1, 2}}, sum("x")}, {{{1, 0}, {1, 2}}, sum("y")}};
  m.state = xxh("state");
  m.chain_bytes = 1000;
  m.anchor = 8;
  m.anchor_bytes = 500;
  m.elements = 10;
  m.changed = 3;
  m.milliseconds = 44;
  m.codec = "auto";
  return m;
}

HopRecord sample_hop() {
  return {.run = std::string(32, 'b'),
          .version = 12,
          .base = 8,
          .manifest = sha("12"),
          .base_manifest = sha("8"),
          .created = "2026-11-15T05:36:24Z",
          .parts = {{"parts/0000000012-cd/part-00000.safetensors", 9, sha("p")}}};
}

// Edits a record and recomputes its checksum, as a forger without a key can.
std::string forge(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const size_t check = text.find("\"check\":\"");
  std::string without = text;
  without.erase(check, 9 + 32 + 2);
  text.replace(check + 9, 32, xxh(without).hex());
  return text;
}

TEST(Manifest, RoundTrips) {
  const Manifest m = sample();
  const std::string text = serialise_manifest(m, {}).value();
  const Manifest back = must(parse_manifest(text, {}));
  EXPECT_EQ(back.run, m.run);
  EXPECT_EQ(back.version, 12U);
  EXPECT_EQ(back.base, 11U);
  EXPECT_EQ(back.parent, m.parent);
  EXPECT_EQ(back.kind, VersionKind::kDelta);
  EXPECT_EQ(back.created, m.created);
  EXPECT_EQ(back.publisher, m.publisher);
  EXPECT_EQ(back.parts, m.parts);
  EXPECT_EQ(back.part_bytes(), 123U);
  EXPECT_EQ(back.files, m.files);
  EXPECT_EQ(back.schema, m.schema);
  EXPECT_EQ(back.digests, m.digests);
  EXPECT_EQ(back.boxes, m.boxes);
  EXPECT_EQ(back.state, m.state);
  EXPECT_EQ(back.chain_bytes, 1000U);
  EXPECT_EQ(back.anchor, 8U);
  EXPECT_EQ(back.anchor_bytes, 500U);
  EXPECT_EQ(back.milliseconds, 44U);
  EXPECT_EQ(serialise_manifest(back, {}).value(), text);
}

// Readers ignore members that they do not know.
TEST(Manifest, IgnoresUnknownMembers) {
  Manifest m = sample();
  m.origin = "somewhere";
  const Manifest other = must(
      parse_manifest(forge(serialise_manifest(m, {}).value(), "\"origin\":", "\"orogen\":"), {}));
  EXPECT_EQ(other.origin, "");
  EXPECT_EQ(other.codec, "auto");
}

TEST(Manifest, QuantizationIsOptional) {
  Manifest m = sample();
  EXPECT_FALSE(contains(serialise_manifest(m, {}).value(), "quantization"));
  m.quantization = R"({"default":{"block":[128,128],"format":"fp8-block"}})";
  const std::string text = serialise_manifest(m, {}).value();
  EXPECT_EQ(parse_manifest(text, {})->quantization, m.quantization);
}

TEST(Manifest, TextIsPinned) {
  Manifest m = sample();
  m.parts.resize(1);
  m.files.resize(1);
  m.boxes.clear();
  m.digests.resize(1);
  EXPECT_EQ(
      serialise_manifest(m, {}).value(),
      R"({"anchor":8,"anchor_bytes":500,"base":11,"chain_bytes":1000,"changed":3,)"
      R"("check":"46dbda48db6b1d72a5cd5b3d2d6a3790","codec":"auto",)"
      R"("created":"2026-11-15T05:36:24Z","digest":"sum128","digests":"cOYEqqLbisYLQGGAAsH3Ww==",)"
      R"("elements":10,"files":[["config.json",5,)"
      R"("b79606fb3afea5bd1609ed40b622142f1c98125abcfe89a76a661b0e8e343910","0000000003-ef"]],)"
      R"("format":"manifest/1","kind":"delta","milliseconds":44,)"
      R"("parent":"e47125968b3b71049fbc4802d1e40a71ea1359decfabacf70b34588037d4ff0c",)"
      R"("parts":[{"bytes":100,"name":"parts/0000000012-ab/part-00000.safetensors",)"
      R"("sha-256":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"}],)"
      R"("publisher":"host:1 \"quoted\"","run":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",)"
      R"("schema":{"bytes":7,"name":"schemas/x.json",)"
      R"("sha-256":"df0ad6e43880f09c90ebf95f19110178aba6890df0010ebda7485029e2b543b4"},)"
      R"("state":"ccb356a16ce4d54a899465fe1ae32812","version":12})");
}

TEST(Manifest, DetectsEveryFlippedBit) {
  const std::string manifest = serialise_manifest(sample(), {}).value();
  const std::string hop = serialise_hop(sample_hop(), {}).value();
  for (size_t at = 0; at < manifest.size() * 8; ++at) {
    std::string bad = manifest;
    bad[at / 8] = char(bad[at / 8] ^ (1 << at % 8));
    EXPECT_FALSE(parse_manifest(bad, {}).ok()) << "bit " << at;
  }
  for (size_t at = 0; at < hop.size() * 8; ++at) {
    std::string bad = hop;
    bad[at / 8] = char(bad[at / 8] ^ (1 << at % 8));
    EXPECT_FALSE(parse_hop(bad, {}).ok()) << "bit " << at;
  }
}

TEST(Manifest, DetectsEveryTruncation) {
  const std::string text = serialise_manifest(sample(), {}).value();
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(parse_manifest(text.substr(0, size), {}).ok());
  }
  EXPECT_FALSE(parse_manifest(text + " ", {}).ok());
}

TEST(Manifest, RejectsForgedFieldsByName) {
  const std::string good = serialise_manifest(sample(), {}).value();
  ASSERT_TRUE(parse_manifest(forge(good, "\"elements\":10", "\"elements\":11"), {}).ok());
  const auto refused = [&](std::string_view from, std::string_view to, const char* phrase) {
    return is_failure(parse_manifest(forge(good, from, to), {}).status(), Code::kCorruption,
                      phrase);
  };
  EXPECT_TRUE(refused("\"base\":11", "\"base\":12", "\"base\""));
  EXPECT_TRUE(refused("\"base\":11", "\"base\":null", "\"base\""));
  EXPECT_TRUE(refused("\"kind\":\"delta\"", "\"kind\":\"full\"", "\"base\""));
  EXPECT_TRUE(refused("\"kind\":\"delta\"", "\"kind\":\"else\"", "\"kind\""));
  EXPECT_TRUE(refused("\"version\":12", "\"version\":\"12\"", "\"version\": expected a number"));
  EXPECT_TRUE(refused("\"anchor\":8", "\"anchor\":13", "\"anchor\""));
  EXPECT_TRUE(refused("\"chain_bytes\":1000", "\"chain_bytes\":122", "\"chain_bytes\""));
  EXPECT_TRUE(refused("\"bytes\":100", "\"bytes\":18446744073709551615", "sizes that add up"));
  EXPECT_TRUE(refused("\"parts\":[", "\"parts\":[1,", "parts"));
  for (const auto& [name, phrase] :
       std::vector<std::pair<std::string, const char*>>{{"../x", "a slash"},
                                                        {"a/b", "a slash"},
                                                        {"", "the name is empty"},
                                                        {"current", "reserved for replicas"},
                                                        {"a.safetensors", "reserved for weights"},
                                                        {"tokenizer – v2.json", "ascending"},
                                                        {"zz", "ascending"}}) {
    EXPECT_TRUE(refused("[\"config.json\",5", "[\"" + name + "\",5", phrase)) << name;
  }
  EXPECT_TRUE(refused("\"config.json\",5", "\"config.json\",1073741824", "together"));
  EXPECT_TRUE(refused("\"config.json\",5", "\"config.json\"", "\"files\""));
  EXPECT_TRUE(refused(",\"0000000003-ef\"]", "]", "\"files\""));
  EXPECT_TRUE(refused("\"files\":[", "\"filed\":[", "\"files\""));
  EXPECT_TRUE(refused("\"run\":\"aa", "\"run\":\"AA", "\"run\""));
  EXPECT_TRUE(refused("\"boxes\":{\"w\\n\":[[", "\"boxes\":{\"v\":[],\"w\\n\":[[", "\"boxes\""));
  EXPECT_TRUE(refused("\"digests\":\"", "\"digests\":\"AAAA", "\"digests\""));
  EXPECT_FAILS(parse_manifest(forge(good, "manifest/1", "manifest/2"), {}), kUnsupported,
               "manifest/2");
  EXPECT_FAILS(parse_manifest(forge(good, "\"digest\":\"sum128\"", "\"digest\":\"xxh3-128\""), {}),
               kUnsupported, "digest \"xxh3-128\"");
}

TEST(Manifest, AllowsASideFileNamedPacked) {
  Manifest m = sample();
  m.files = {{"model.safetensors.packed", 5, sha("of an older release"), "0000000003-ef"}};
  EXPECT_TRUE(parse_manifest(serialise_manifest(m, {}).value(), {}).ok());
}

TEST(Manifest, ChecksSumsOfBoxes) {
  const std::vector<uint8_t> bytes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  Manifest m = sample();
  m.digests = {digest_of(DigestKind::kSum128, bytes)};
  m.boxes = {{"w", {}}};
  for (const uint64_t row : {0, 1, 2}) {
    const auto contents = std::span(bytes).subspan(4 * row, 4);
    BoxDigest box{{{row, 0}, {1, 4}}, digest_of(DigestKind::kSum128, contents)};
    box.sums.emplace();
    box.sums->add(contents, 4 * row);
    m.boxes["w"].push_back(box);
  }
  EXPECT_EQ(boxes_digest(m.boxes["w"], bytes.size()).value(), m.digests[0]);
  EXPECT_EQ(boxes_hashed(m, "w"), nullptr) << "the digest is of the tensor's bytes";
  const auto back = must(parse_manifest(serialise_manifest(m, {}).value(), {}));
  EXPECT_EQ(back.boxes, m.boxes);

  const auto refused = [](const Manifest& bad, const char* phrase) {
    return is_failure(parse_manifest(serialise_manifest(bad, {}).value(), {}).status(),
                      Code::kCorruption, phrase);
  };
  Manifest some = m;
  some.boxes["w"][1].sums.reset();
  EXPECT_TRUE(refused(some, "sums of all boxes of a tensor, or of none"));
  // One box twice, in place of another.
  m.boxes["w"][2] = m.boxes["w"][1];
  EXPECT_FALSE(boxes_digest(m.boxes["w"], bytes.size()).ok());
}

TEST(Manifest, SignsTheRecordWithoutItsSignature) {
  std::string signed_text;
  const Signer sign = [&](std::string_view text) -> Result<Signature> {
    signed_text = text;
    return Signature{std::string(64, '1'), std::string(128, '2')};
  };
  const std::string text = serialise_manifest(sample(), sign).value();
  EXPECT_EQ(signed_text, serialise_manifest(sample(), {}).value());
  bool asked = false;
  const Verifier trust = [&](std::string_view own, const std::optional<Signature>& signature) {
    asked = own == signed_text && signature && signature->key == std::string(64, '1') &&
            signature->bytes == std::string(128, '2');
    return Status();
  };
  EXPECT_TRUE(parse_manifest(text, trust).ok());
  EXPECT_TRUE(asked);
  const Verifier refuse = [](std::string_view, const std::optional<Signature>&) {
    return corruption("no");
  };
  EXPECT_FAILS(parse_manifest(text, refuse), kCorruption, "no");
  EXPECT_TRUE(parse_manifest(text, {}).ok());
}

TEST(HopRecord, RoundTrips) {
  const HopRecord e = sample_hop();
  const HopRecord back = must(parse_hop(serialise_hop(e, {}).value(), {}));
  EXPECT_EQ(back.version, 12U);
  EXPECT_EQ(back.base, 8U);
  EXPECT_EQ(back.manifest, e.manifest);
  EXPECT_EQ(back.base_manifest, e.base_manifest);
  EXPECT_EQ(back.parts, e.parts);
  const std::string good = serialise_hop(e, {}).value();
  for (const auto& [from, to] :
       {std::pair("\"base\":8", "\"base\":12"), {"\"base\":8", "\"base\":null"}}) {
    EXPECT_FAILS(parse_hop(forge(good, from, to), {}), kCorruption, "base");
  }
}

TEST(Schema, RoundTrips) {
  const Schema schema{{{"a", DType::kBF16, {2, 3}}, {"b \"x\"", DType::kF32, {}}}};
  const std::string text = serialise_schema(schema);
  EXPECT_EQ(text, R"({"format":"schema/1","tensors":[["a","BF16",[2,3]],["b \"x\"","F32",[]]]})");
  EXPECT_EQ(must(parse_schema(text)), schema);
  EXPECT_TRUE(parse_schema(serialise_schema({})).ok());
}

TEST(Schema, NamesEachDefect) {
  const auto refused = [](std::string_view tensors, Code code, const char* phrase) {
    return is_failure(
        parse_schema(R"({"format":"schema/1","tensors":)" + std::string(tensors) + "}").status(),
        code, phrase);
  };
  EXPECT_TRUE(refused(R"([["b","U8",[1]],["a","U8",[1]]])", Code::kCorruption, "ascending"));
  EXPECT_TRUE(refused(R"([["a","U8",[1]],["a","U8",[1]]])", Code::kCorruption, "ascending"));
  EXPECT_TRUE(refused(R"([["a","X9",[1]]])", Code::kUnsupported, "X9"));
  EXPECT_TRUE(refused(R"([["a","U8"]])", Code::kCorruption, "name, dtype and shape"));
  EXPECT_TRUE(refused(R"([["a","U8",[1],1]])", Code::kCorruption, "name, dtype and shape"));
  EXPECT_TRUE(refused(R"([1])", Code::kCorruption, "name, dtype and shape"));
  EXPECT_TRUE(refused(R"(1)", Code::kCorruption, "a list"));
  EXPECT_TRUE(refused(R"([["a","F64",[18446744073709551615,8]]])", Code::kCorruption, "\"a\""));
}

}  // namespace
}  // namespace deltawire::testing
