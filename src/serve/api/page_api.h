// The page of a server, its JSON API (docs/api.md) and its metrics.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/keys.h"
#include "deltawire/store.h"
#include "http/http_server.h"

namespace deltawire {

class ChainWatch;

struct PageOptions {
  std::vector<std::shared_ptr<Store>> more = {};  // chains that are shown beside the one served
  Keys keys = {};                                 // checks signatures
};

// Thread-safe.
class PageApi {
 public:
  PageApi(std::shared_ptr<Store> store, const PageOptions& options, double poll_seconds);
  ~PageApi();
  void end();  // ends all streams

  static bool has(std::string_view path);
  static bool is_public(const HttpCall& call);  // a static file of the page, without chain data
  HttpReply answer(const HttpCall& call);

 private:
  HttpReply api(const HttpCall& call);
  HttpReply metrics();

  const double started_;
  std::vector<std::unique_ptr<ChainWatch>> chains_;
};

}  // namespace deltawire
