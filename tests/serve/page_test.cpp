// The page's API of docs/api.md, with chains of every kind.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "base/clock.h"
#include "chain/heartbeat.h"
#include "chain/names.h"
#include "http/http_client.h"
#include "serve/api/layer_shares.h"
#include "serve/api/version_history.h"
#include "serve/chain_server.h"
#include "store/directory_store.h"
#include "store/memory_store.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

using Answer = nlohmann::json;

std::unique_ptr<ChainServer> serve_page(std::shared_ptr<Store> store, ServeOptions options = {},
                                        PageOptions page = {}) {
  options.page = std::move(page);
  options.poll_seconds = 0.2;
  return must(ChainServer::start(std::move(store), std::move(options)));
}

HttpReply call(ChainServer& server, const std::string& path,
               std::map<std::string, std::string> headers = {}, const std::string& method = "GET") {
  headers.try_emplace("Host", "127.0.0.1:8410");
  HttpCall call{.method = method, .path = path.substr(0, path.find('?'))};
  if (const size_t query = path.find('?'); query != path.npos) {
    std::istringstream parameters(path.substr(query + 1));
    for (std::string one; std::getline(parameters, one, '&');) {
      call.parameters[one.substr(0, one.find('='))] = one.substr(one.find('=') + 1);
    }
  }
  call.header = [headers](const char* name) {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  };
  return server.reply(call);
}

Answer get(ChainServer& server, const std::string& path) {
  const HttpReply reply = call(server, "/api/v1/chains" + path);
  EXPECT_EQ(reply.status, 200) << path << reply.body;
  return Answer::parse(reply.body);
}

// Repeats the request until `good` accepts the answer.
Answer get_until(ChainServer& server, const std::string& path,
                 const std::function<bool(const Answer&)>& good, double seconds = 20) {
  for (const double begin = steady_seconds();;) {
    Answer answer = get(server, path);
    if (good(answer)) return answer;
    if (steady_seconds() - begin > seconds) {
      ADD_FAILURE() << path << " after " << seconds << " s: " << answer.dump().substr(0, 2000);
      return answer;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

bool is_loaded(const Answer& answer) {
  const Answer& loading = answer.at("loading");
  return loading["total"] != 0 && loading["done"] == loading["total"];
}

Heartbeat beat_of(const TestChain& chain, const std::string& name, uint64_t version) {
  Heartbeat beat{.name = name, .id = name, .session = "1", .host = "gpu-17", .pid = 4711};
  beat.held = chain.records[version].identity();
  beat.seen = unix_seconds();
  beat.interval_seconds = 60;
  return beat;
}

TEST(Page, AnswersForARealChain) {
  TestChain chain;
  for (int i = 0; i < 6; ++i) {
    chain.tamper = [](Manifest* m) {
      if (m->kind == VersionKind::kDelta) m->elements = 40, m->changed = 2 + m->version;
    };
    chain.publish_step();
  }
  chain.add_anchor(3);
  chain.add_merged(1, 5);
  ASSERT_TRUE(write_heartbeat(*chain.store(), beat_of(chain, "late", 3)).ok());
  ASSERT_TRUE(write_heartbeat(*chain.store(), beat_of(chain, "fast", 5)).ok());
  const auto server = serve_page(chain.store());
  const Answer versions = get_until(*server, "/0/versions", [](const Answer& answer) {
    return is_loaded(answer) && answer["merged_total"] == 1 && answer["replicas"].size() == 2;
  });
  const Answer& columns = versions["columns"];
  EXPECT_EQ(columns["version"], Answer({0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(columns["count"], Answer({1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(columns["full"], Answer({1, 0, 0, 0, 0, 0}));
  for (uint64_t v = 0; v < 6; ++v) {
    const Manifest& m = chain.records[v].manifest;
    EXPECT_EQ(columns["bytes"][v], m.part_bytes());
    if (v == 0) continue;
    EXPECT_NEAR(columns["share"][v], double(m.changed) / double(m.elements), 1e-7);
  }
  EXPECT_TRUE(columns["share"][0].is_null());
  EXPECT_EQ(versions["anchors"][0]["version"], 0);
  EXPECT_EQ(versions["anchors"][1]["version"], 3);
  EXPECT_EQ(versions["merged"][0]["base"], 1);
  EXPECT_EQ(get(*server, "/0/versions?points=2")["step"], 4);

  const Answer fleet = get(*server, "/0/fleet");
  ASSERT_EQ(fleet["replicas"].size(), 2U);
  EXPECT_EQ(fleet["replicas"][0]["name"], "fast");
  EXPECT_EQ(fleet["replicas"][0]["state"], "current");
  EXPECT_EQ(fleet["replicas"][0]["proof"], "proven");
  EXPECT_EQ(fleet["replicas"][1]["lag_versions"], 2);
  EXPECT_EQ(fleet["replicas"][1]["state"], "behind");  // the records are of 2026
  EXPECT_EQ(get(*server, "/0/fleet?since=" + fleet["revision"].dump())["replicas"].size(), 0U);
  const Answer health = get(*server, "/0/health");
  EXPECT_EQ(health["state"], "warning");
  EXPECT_NE(health["text"].get<std::string>().find("late holds version 3"), std::string::npos);
  EXPECT_NE(health["advice"].get<std::string>().find("late on gpu-17"), std::string::npos);

  const Answer version = get(*server, "/0/versions/4");
  const std::vector<ChangeCounts> changes = must(chain.chain.changes(4));
  EXPECT_EQ(version["tensors_total"], 3);
  EXPECT_EQ(version["tensors_changed"], changes.size());
  EXPECT_EQ(version["changed"], 6);
  uint64_t changed = 0, counted = 0;
  for (const Answer& codec : version["codecs"]) changed += codec["changed"].get<uint64_t>();
  for (const ChangeCounts& own : changes) counted += own.num_changed;
  EXPECT_EQ(changed, counted);
  for (const ChangeCounts& own : changes) {
    for (const Answer& tensor : version["tensors"]) {
      if (tensor["name"] != own.tensor) continue;
      EXPECT_EQ(tensor["changed"], own.num_changed);
    }
  }
  EXPECT_EQ(get(*server, "/0/versions/5")["also"][0]["base"], 1);
  const Plan plan = must(chain.chain.plan({}, 5));
  EXPECT_EQ(get(*server, "/0/versions/5/plan")["bytes"], plan.bytes);

  const Answer layers = get_until(*server, "/0/layers", is_loaded);
  ASSERT_EQ(layers["rows"].size(), 1U);  // a, b and c have no layer and no type
  EXPECT_EQ(layers["rows"][0]["tensors"], 3);
  const Answer rows = get_until(*server, "/0/layers?row=0", is_loaded);
  ASSERT_EQ(rows["rows"].size(), 3U);
  EXPECT_TRUE(rows["rows"][0]["share"][0].is_null());
  const Answer tensor = get_until(*server, "/0/tensors/" + changes[0].tensor, is_loaded);
  EXPECT_NEAR(tensor["columns"]["share"][4],
              double(changes[0].num_changed) / double(changes[0].num_elements), 1e-7);
  EXPECT_TRUE(tensor["one_ulp"].is_null());  // too few changes for tables
  EXPECT_EQ(get(*server, "/0/events")["events"].back()["version"], 5);
}

TEST(Page, EstimatesTheShareOfStepsOfOneUlp) {
  TestChain chain;
  State state = {make_tensor("w", DType::kBF16, {256, 1024}, 1),
                 make_tensor("packed", DType::kF4, {256, 1024}, 1)};
  chain.publish_full(state);
  std::mt19937_64 random(7);
  for (int version = 1; version < 4; ++version) {
    for (size_t i = 0; i < state[0].bytes.size(); i += 2) {
      if (random() % 10 != 0) continue;
      const uint16_t step = random() % 10 < 7 ? 1 : 3;  // 70 % are of one ULP
      const auto old = load_le<uint16_t>(&state[0].bytes[i]);
      store_le(&state[0].bytes[i], uint16_t(random() % 2 != 0 ? old + step : old - step));
    }
    for (uint8_t& byte : state[1].bytes) byte = uint8_t(byte + (random() % 10 == 0));
    chain.publish_delta(state, "tight");
  }
  const auto server = serve_page(chain.store());
  get_until(*server, "/0/versions", is_loaded);
  const Answer tensor = get_until(*server, "/0/tensors/w", is_loaded);
  EXPECT_NEAR(tensor["one_ulp"], 0.7, 0.08);
  EXPECT_EQ(tensor["columns"]["version"].size(), 4U);
  // Several elements in a byte.
  EXPECT_TRUE(get_until(*server, "/0/tensors/packed", is_loaded)["one_ulp"].is_null());
  // Of version 0, which is stored whole, nothing is known.
  EXPECT_TRUE(get_until(*server, "/0/tensors/w?to=0", is_loaded)["one_ulp"].is_null());
}

TEST(Page, LooksForAVersionThatAReplicaAlreadyHolds) {
  TestChain chain;
  chain.publish_step();
  std::atomic<int> listings = 0;
  std::latch seen(1);
  chain.hooks->before = [&](std::string_view call, std::string_view name) {
    if (call != "list" || !name.starts_with(kReplicaPrefix)) return Status();
    const int before = listings++;
    if (before == 0) {  // after the server looked for versions, before it reads heartbeats
      chain.publish_step();
      EXPECT_TRUE(write_heartbeat(*chain.store(), beat_of(chain, "quick", 1)).ok());
      Heartbeat ghost = beat_of(chain, "ghost", 1);
      ghost.held->version = 99;
      EXPECT_TRUE(write_heartbeat(*chain.store(), ghost).ok());
    } else if (before == 1) {
      seen.wait();  // keeps what the first look showed
    }
    return Status();
  };
  {
    const auto server = serve_page(chain.hooks);
    const Answer fleet = get_until(*server, "/0/fleet",
                                   [](const Answer& all) { return all["replicas"].size() == 2; });
    EXPECT_EQ(fleet["head"], 1);
    EXPECT_EQ(fleet["replicas"][0]["state"], "other");  // such a version does not exist
    EXPECT_EQ(fleet["replicas"][1]["state"], "current");
    seen.count_down();
  }
}

TEST(Page, ClassifiesTensorsByTypeAndLayer) {
  EXPECT_EQ(module_type("model.layers.3.self_attn.q_proj.weight"), "attention");
  EXPECT_EQ(module_type("model.layers.3.self_attn.q_norm.weight"), "norms");
  EXPECT_EQ(module_type("model.layers.3.mlp.experts.17.up_proj.weight"), "experts");
  EXPECT_EQ(module_type("model.layers.3.mlp.up_proj.weight"), "mlp");
  EXPECT_EQ(module_type("transformer.h.11.ln_1.bias"), "norms");
  EXPECT_EQ(module_type("lm_head.weight"), "embeddings");
  EXPECT_EQ(module_type("A_log"), "other");
  EXPECT_EQ(layer_of("model.layers.3.mlp.experts.17.up_proj.weight"), 3U);
  EXPECT_EQ(layer_of("lm_head.weight"), std::nullopt);
}

TEST(Page, ColumnsStartAtMultiplesOfTheirStep) {
  for (const uint64_t points : {1, 2, 7, 400, 4000}) {
    for (const uint64_t from : {uint64_t{0}, uint64_t{13}, uint64_t{99'999}}) {
      const uint64_t to = from + 100'000;
      const VersionGrid grid = VersionGrid::over(from, to, points);
      EXPECT_LE(grid.num_columns, points);
      EXPECT_EQ(grid.first % grid.step, 0U);
      EXPECT_LE(grid.begin(0), from);
      EXPECT_GT(grid.begin(grid.num_columns), to);
    }
  }
}

// Records without parts: a run of several weeks, and a large fleet.
TEST(Page, HandlesManyVersionsAndReplicas) {
  DW_LABEL(long);
  constexpr uint64_t kVersions = 100'000;
  TestChain chain;
  chain.add(1000);
  Manifest m = chain.next(100, false);
  m.kind = VersionKind::kDelta;
  m.elements = 1000;
  uint64_t total = 0;
  for (uint64_t v = 1; v < kVersions; ++v) {
    m.version = v;
    m.base = v - 1;
    m.parent = record_digest("parent");
    m.changed = v % 100;
    m.parts[0] = {part_folder(v, "aa") + "part-00000.safetensors", v, record_digest("part")};
    m.chain_bytes = 1000 + (total += v);
    m.run = chain.chain.run();
    m.created = "2026-11-15T05:36:24Z";
    m.publisher = "trainer:1";
    m.codec = "auto";
    ASSERT_TRUE(
        chain.memory->put(manifest_name(v), MemoryBody(must(serialise_manifest(m, {})))).ok());
  }
  ASSERT_TRUE(chain.memory->put("HEAD", MemoryBody(std::to_string(kVersions - 1))).ok());
  for (int i = 0; i < 1000; ++i) {
    Heartbeat beat = beat_of(chain, "rollout-" + std::to_string(i), 0);
    ASSERT_TRUE(write_heartbeat(*chain.memory, beat).ok());
  }
  const auto server = serve_page(chain.memory);
  get_until(*server, "/0/fleet", [](const Answer& all) { return all["replicas"].size() == 1000; });
  const Answer first = get(*server, "/0/versions?points=400");
  EXPECT_EQ(first["head"], kVersions - 1);
  const Answer all = get_until(
      *server, "/0/versions?points=400", [](const Answer& one) { return is_loaded(one); }, 120);
  EXPECT_EQ(all["columns"]["version"].size(), (kVersions + 255) / 256);
  uint64_t bytes = 0, count = 0;
  for (const Answer& one : all["columns"]["bytes"]) bytes += one.get<uint64_t>();
  for (const Answer& one : all["columns"]["count"]) count += one.get<uint64_t>();
  EXPECT_EQ(bytes, total + 1000);
  EXPECT_EQ(count, kVersions);
  // Zoomed in to single versions.
  const Answer near = get(*server, "/0/versions?from=5000&to=5009");
  EXPECT_EQ(near["step"], 1);
  EXPECT_EQ(near["columns"]["bytes"][3], 5003);
}

TEST(Page, StreamReportsCommitsAndReplicaEvents) {
  const TempFolder folder;
  TestChain chain(std::make_shared<DirectoryStore>(folder.path() / "store"));
  chain.publish_step();
  const auto server = serve_page(chain.store());
  get_until(*server, "", [](const Answer& all) { return all["chains"][0]["head"] == 0; });
  const HttpReply reply = call(*server, "/api/v1/chains/0/stream");
  EXPECT_EQ(reply.content_type, "text/event-stream");
  std::string text;
  ASSERT_TRUE(reply.next_text(&text));
  EXPECT_TRUE(text.starts_with("event: hello\ndata: {")) << text;
  std::thread publisher([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    chain.publish_step();
  });
  const double begin = steady_seconds();
  while (text.find("version 1 was published") == text.npos && steady_seconds() - begin < 20) {
    ASSERT_TRUE(reply.next_text(&text));
  }
  publisher.join();
  EXPECT_NE(text.find("event: head\ndata: {\"first\":0,\"head\":1"), text.npos) << text;

  // A failed attempt, and the successful one.
  ASSERT_TRUE(chain.store()->put(part_folder(2, "deadbeefdead") + "x", MemoryBody("x")).ok());
  chain.publish_step();
  while (text.find("\"kind\":\"failed_publish\"") == text.npos) ASSERT_TRUE(reply.next_text(&text));
  const Answer columns = get(*server, "/0/versions")["columns"];
  EXPECT_EQ(columns["count"], Answer({1, 1, 1}));
  EXPECT_EQ(columns["failed"], Answer({nullptr, 0, 1}));

  // The events of a replica.
  Heartbeat beat = beat_of(chain, "r", 2);
  beat.pause_microseconds = 14'350;
  const auto until = [&](const std::string& words) {
    ASSERT_TRUE(write_heartbeat(*chain.store(), beat).ok());
    for (const double from = steady_seconds(); text.find(words) == text.npos;) {
      ASSERT_LT(steady_seconds() - from, 20) << words << "\n" << text;
      ASSERT_TRUE(reply.next_text(&text));
    }
  };
  until("r is new and holds version 2");
  EXPECT_EQ(get(*server, "/0/fleet")["replicas"][0]["pause_seconds"], 0.01435);
  beat.session = "2";
  until("r was restarted as process 4711");
  EXPECT_EQ(get(*server, "/0/fleet")["replicas"][0]["restarts"], 1);
  beat.error = "corruption: a part is damaged";
  until("\"kind\":\"failed_proof\"");
  EXPECT_NE(text.find("\"state\":\"error\""), text.npos);
  beat.error = "corruption: store/manifests/1.json: signature: expected one by a trusted key";
  until("\"kind\":\"refused\"");
  EXPECT_NE(get(*server, "/0/health")["advice"].get<std::string>().find("--trust"), text.npos);
  beat.error.clear();
  until("r recovered and holds version 2");
  beat.held->manifest = record_digest("other").hex();
  until("holds another version 2 than the store");
  must(chain.chain.forget("r", true));
  until("r is new");
}

TEST(Page, StreamsEndWithTheServer) {
  TestChain chain;
  chain.publish_step();
  auto server = serve_page(chain.store());
  HttpAnswer answer;
  std::string text;
  std::latch streaming(1);
  std::thread reader([&, url = server->url()] {
    HttpClient client;
    HttpRequest request;
    request.method = "GET";
    request.url = url + "/api/v1/chains/0/stream";
    request.on_bytes = [&](const HttpAnswer&, std::span<const uint8_t> bytes) {
      if (text.empty()) streaming.count_down();
      text.append(bytes.begin(), bytes.end());
      return Status();
    };
    answer = must(client.perform(request));
  });
  streaming.wait();
  server.reset();
  reader.join();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("content-type"), "text/event-stream");
  EXPECT_TRUE(text.starts_with("event: hello\n")) << text;
}

TEST(Page, EscapesForeignNames) {
  TestChain chain;
  chain.publish_step();
  const std::string name = "<img src=x onerror=alert(1)>\"\\\n\u2028";
  Heartbeat beat = beat_of(chain, name, 0);
  beat.host = "</script>";
  beat.error = "\x7f{\"a\":1}";
  ASSERT_TRUE(write_heartbeat(*chain.store(), beat).ok());
  ASSERT_TRUE(chain.store()->put("replicas/bad.json", MemoryBody("\xff<b>")).ok());
  const auto server = serve_page(chain.store());
  const Answer fleet =
      get_until(*server, "/0/fleet", [](const Answer& all) { return all["replicas"].size() == 2; });
  std::set<std::string> names, states;
  for (const Answer& row : fleet["replicas"]) {
    names.insert(row["name"]);
    states.insert(row["state"]);
  }
  EXPECT_EQ(names, (std::set<std::string>{name, "bad.json"}));
  EXPECT_EQ(states, (std::set<std::string>{"failed", "unreadable"}));
  const HttpReply reply = call(*server, "/api/v1/chains/0/fleet");
  EXPECT_EQ(reply.content_type, "application/json");
  const std::set<std::pair<std::string, std::string>> headers(reply.headers.begin(),
                                                              reply.headers.end());
  EXPECT_TRUE(headers.contains({"X-Content-Type-Options", "nosniff"}));
  const std::string metrics = call(*server, "/metrics").body;
  EXPECT_NE(metrics.find("deltawire_fleet_replica_version{"), metrics.npos);
  EXPECT_NE(metrics.find("deltawire_chain_events_total{chain=\"0\",kind=\"gone\"} 0\n"),
            metrics.npos);
  EXPECT_NE(metrics.find("onerror=alert(1)>\\\"\\\\\\n"), metrics.npos) << metrics;
}

TEST(Page, RejectsInvalidRequests) {
  TestChain chain;
  chain.publish_step();
  const auto server = serve_page(chain.store());
  get_until(*server, "", [](const Answer& all) { return all["chains"][0]["head"] == 0; });
  for (const auto& [path, status] :
       std::map<std::string, int>{{"/api/v1/chains/1/fleet", 404},
                                  {"/api/v1/chains/x", 404},
                                  {"/api/v1/chains/0/nothing", 404},
                                  {"/api/v2/chains", 404},
                                  {"/api/v1/chains/0/versions?points=0", 400},
                                  {"/api/v1/chains/0/versions?points=4001", 400},
                                  {"/api/v1/chains/0/versions?from=-1", 400},
                                  {"/api/v1/chains/0/versions/9", 404},
                                  {"/api/v1/chains/0/versions/x", 400},
                                  {"/api/v1/chains/0/versions/9/plan", 404},
                                  {"/api/v1/chains/0/versions/0?tensors=x", 400},
                                  {"/api/v1/chains/0/layers?row=99", 404},
                                  {"/api/v1/chains/0/tensors/none", 404},
                                  {"/api/v1/chains/0/events?limit=0", 400},
                                  {"/api/v1/chains/0/fleet?since=x", 400},
                                  {"/api/v1/chains/0/stream?since=x", 400},
                                  {"/page/../index.html", 404}}) {
    const HttpReply reply = call(*server, path);
    EXPECT_EQ(reply.status, status) << path;
    EXPECT_TRUE(Answer::parse(reply.body)["error"].is_string()) << path;
  }
  EXPECT_EQ(call(*server, "/api/v1/chains", {}, "POST").status, 405);
  EXPECT_EQ(call(*server, "/", {}, "DELETE").status, 405);
  // Any range is valid.
  EXPECT_EQ(get(*server, "/0/versions?from=7&to=3&points=1")["columns"]["version"].size(), 1U);
}

TEST(Page, StoreWithoutAChainIsAWarning) {
  const auto store = std::make_shared<MemoryStore>("empty");
  const auto server = serve_page(store);
  const Answer health = get_until(*server, "/0/health", [](const Answer& one) {
    return !one["text"].get<std::string>().empty();
  });
  EXPECT_EQ(health["state"], "warning");
  EXPECT_EQ(get(*server, "")["chains"][0]["run"], nullptr);
  EXPECT_EQ(get(*server, "/0/versions")["columns"]["count"], Answer::array());
  EXPECT_EQ(call(*server, "/api/v1/chains/0/layers").status, 404);
  TestChain chain(store);  // a trainer comes
  chain.publish_step();
  get_until(*server, "/0/versions", [](const Answer& one) { return one["head"] == 0; });
}

TEST(Page, ReportsEnginesThatServeAnOlderVersion) {
  const TempFolder folder;
  TestChain chain(std::make_shared<DirectoryStore>(folder.path()));
  for (int i = 0; i < 2; ++i) chain.publish_step();
  for (const std::string name : {"loads", "stuck", "well"}) {
    Heartbeat beat = beat_of(chain, name, 1);
    beat.serving = chain.records[name == "well" ? 1 : 0].identity();
    ASSERT_TRUE(write_heartbeat(*chain.store(), beat).ok());
    if (name == "loads") continue;
    fs::last_write_time(folder.path() / heartbeat_object(name),
                        fs::file_time_type::clock::now() - std::chrono::seconds(100));
  }
  const auto server = serve_page(chain.store());
  const Answer fleet =
      get_until(*server, "/0/fleet", [](const Answer& one) { return one["replicas"].size() == 3; });
  const Answer& rows = fleet["replicas"];
  EXPECT_EQ(rows[0]["state"], "current");
  EXPECT_EQ(rows[1]["state"], "engine_behind");
  EXPECT_EQ(rows[2]["state"], "current");
  const Answer health = get(*server, "/0/health");
  EXPECT_EQ(health["state"], "warning");
  EXPECT_NE(health["text"].get<std::string>().find("its engine serves version 0"),
            std::string::npos);
}

TEST(Page, RecoversWhenTheStoreComesBack) {
  const TempFolder folder;
  const fs::path there = folder.path() / "store", away = folder.path() / "away";
  TestChain chain(std::make_shared<DirectoryStore>(there));
  chain.publish_step();
  ASSERT_TRUE(write_heartbeat(*chain.store(), beat_of(chain, "r", 0)).ok());
  const auto server = serve_page(chain.store());
  const auto is_well = [](const Answer& one) { return one["state"] == "ok" && one["head"] == 0; };
  get_until(*server, "/0/health", is_well);
  get_until(*server, "/0/fleet", [](const Answer& one) { return one["replicas"].size() == 1; });
  fs::rename(there, away);
  const Answer health =
      get_until(*server, "/0/health", [](const Answer& one) { return one["state"] == "error"; });
  EXPECT_NE(health["text"].get<std::string>().find("holds no chain any more"), std::string::npos);
  EXPECT_EQ(health["head"], 0);
  fs::rename(away, there);
  get_until(*server, "/0/health", is_well);
  std::vector<std::string> texts;
  const Answer events = get(*server, "/0/events")["events"];
  for (const Answer& event : events) texts.push_back(event["kind"]);
  EXPECT_EQ(texts, (std::vector<std::string>{"publish", "store", "store"})) << events;
}

TEST(Page, StartsOverWithAnotherRunInTheStore) {
  const auto store = std::make_shared<MemoryStore>("replaced");
  auto before = std::make_unique<TestChain>(store);
  for (int i = 0; i < 3; ++i) before->publish_step();
  ASSERT_TRUE(write_heartbeat(*store, beat_of(*before, "r", 2)).ok());
  const auto server = serve_page(store);
  const Answer fleet =
      get_until(*server, "/0/fleet", [](const Answer& one) { return one["replicas"].size() == 1; });
  get_until(*server, "/0/layers", is_loaded);
  EXPECT_EQ(get(*server, "/0/health")["run"], before->chain.run());
  for (const ObjectInfo& object : must(store->list("", "", 1000))) {
    ASSERT_TRUE(store->remove(object.name).ok());
  }
  TestChain after(store);
  get_until(*server, "/0/health",
            [&](const Answer& one) { return one["run"] == after.chain.run(); });
  EXPECT_EQ(call(*server, "/api/v1/chains/0/layers").status, 404);  // it has no version yet
  after.publish_step();
  get_until(*server, "/0/versions", [](const Answer& one) { return one["head"] == 0; });
  get_until(*server, "/0/layers", is_loaded);
  EXPECT_EQ(get(*server, "/0/versions?to=9")["columns"]["count"], Answer({1}));
  // A client's revision of the previous fleet does not apply to this one.
  const Answer now = get(*server, "/0/fleet?since=" + fleet["revision"].dump());
  EXPECT_EQ(now["complete"], true);
  EXPECT_EQ(now["replicas"], Answer::array());
  const std::string events = get(*server, "/0/events")["events"].dump();
  EXPECT_NE(events.find("the store holds another run: " + after.chain.run()), events.npos)
      << events;
}

TEST(Page, ToleratesAWrongTrainerClock) {
  for (const char* const wrong : {"2001-01-01T00:00:00Z", "2099-01-01T00:00:00Z"}) {
    TestChain chain;
    chain.publish_step();
    const auto server = serve_page(chain.store());
    get_until(*server, "/0/health", [](const Answer& one) { return one["head"] == 0; });
    const int64_t begin = unix_seconds();
    chain.tamper = [&](Manifest* m) { m->created = wrong; };
    ASSERT_TRUE(write_heartbeat(*chain.store(), beat_of(chain, "r", 0)).ok());
    chain.publish_step();
    const Answer fleet = get_until(*server, "/0/fleet", [](const Answer& one) {
      return one["head"] == 1 && one["replicas"].size() == 1 &&
             one["replicas"][0]["lag_versions"] == 1;
    });
    EXPECT_EQ(fleet["replicas"][0]["state"], "current");  // it has had no time to fetch it
    EXPECT_GE(fleet["replicas"][0]["behind_since"], begin - 1);
    EXPECT_LE(fleet["replicas"][0]["behind_since"], unix_seconds());
    const Answer health = get(*server, "/0/health");
    EXPECT_EQ(health["state"], "ok") << health;
    EXPECT_GE(health["head_created"], begin - 1);
    EXPECT_LE(health["head_created"], unix_seconds());
  }
}

TEST(Page, EventNumbersContinueAfterARestart) {
  TestChain chain;
  for (int i = 0; i < 3; ++i) chain.publish_step();
  Answer last;
  for (const size_t count : {3, 0}) {
    const auto server = serve_page(chain.store());
    get_until(*server, "/0/versions", is_loaded);
    const Answer events =
        get(*server, "/0/events" + (last.is_null() ? "" : "?since=" + last.dump()));
    EXPECT_EQ(events["events"].size(), count) << events;
    last = events["last"];
  }
}

TEST(Page, RequiresTheTokenAndAKnownHost) {
  TestChain chain;
  chain.publish_step();
  const auto server = serve_page(chain.store(), {.token = Secret("between us")});
  const std::map<std::string, std::string> known = {{"Authorization", "Bearer between us"},
                                                    {"Host", "trainer.example"}};
  for (const std::string path : {"/api/v1/chains", "/api/v1/chains/0/stream", "/metrics"}) {
    EXPECT_EQ(call(*server, path).status, 401) << path;
    EXPECT_EQ(call(*server, path, {{"Authorization", "Bearer x"}}).status, 401) << path;
    EXPECT_EQ(call(*server, path, known).status, 200) << path;
  }
  EXPECT_EQ(call(*server, "/").status, 200);  // the page asks for the token
  EXPECT_EQ(call(*server, "/objects/run.json").status, 401);

  // A web site whose name resolves to this server cannot read it.
  const auto open = serve_page(chain.store());
  for (const std::string host :
       {"evil.example", "evil.example:8410", "", "127.0.0.1.evil.example"}) {
    EXPECT_EQ(call(*open, "/api/v1/chains", {{"Host", host}}).status, 403) << host;
    EXPECT_EQ(call(*open, "/metrics", {{"Host", host}}).status, 403) << host;
    EXPECT_EQ(call(*open, "/objects/run.json", {{"Host", host}}).status, 403) << host;
  }
  for (const std::string host : {"localhost:8410", "127.0.0.1", "[::1]:8410", "[::1]"}) {
    EXPECT_EQ(call(*open, "/api/v1/chains", {{"Host", host}}).status, 200) << host;
  }
  const auto without = must(ChainServer::start(chain.store(), {}));
  EXPECT_EQ(call(*without, "/").status, 404);
  EXPECT_EQ(call(*without, "/api/v1/chains").status, 404);
}

TEST(Page, FilesHaveASecurityPolicyAndAnETag) {
  TestChain chain;
  const auto server = serve_page(chain.store());
  const HttpReply page = call(*server, "/");
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  const std::map<std::string, std::string> headers(page.headers.begin(), page.headers.end());
  EXPECT_TRUE(
      headers.at("Content-Security-Policy").starts_with("default-src 'none'; script-src 'self'"));
  EXPECT_EQ(call(*server, "/", {{"If-None-Match", headers.at("ETag")}}).status, 304);
  EXPECT_EQ(page.body, call(*server, "/page/index.html").body);
  // Every file that the page references exists and equals its source.
  for (size_t at = 0; (at = page.body.find("page/", at)) != page.body.npos;) {
    const std::string name = page.body.substr(at, page.body.find_first_of("\"'", at) - at);
    EXPECT_EQ(call(*server, "/" + name).body,
              read_file(fs::path(DELTAWIRE_TESTS_DIR) / "../src/serve" / name))
        << name;
    at += name.size();
  }
}

}  // namespace
}  // namespace deltawire::testing
