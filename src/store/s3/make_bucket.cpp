#include "store/s3/client.h"
#include "store/s3/wire/xml.h"
#include "store/s3_store.h"

namespace deltawire {

Status make_s3_bucket(const std::string& bucket, const StoreOptions& options) {
  const std::string place = "s3://" + bucket;
  Result<std::unique_ptr<s3::Client>> client = s3::Client::make(bucket, options);
  if (!client.ok()) return std::move(client).status().at(place);
  std::string xml;
  // AWS wants the region of a new bucket, but not this one.
  if ((*client)->region() != "us-east-1") {
    xml = "<CreateBucketConfiguration><LocationConstraint>" + s3::xml_escape((*client)->region()) +
          "</LocationConstraint></CreateBucketConfiguration>";
  }
  const MemoryBody body(xml);
  s3::Request request;
  request.method = "PUT";
  request.body = {&body, 0, body.size()};
  Result<s3::HttpAnswer> answer = (*client)->send(request);
  if (!answer.ok()) return std::move(answer).status().at(place);
  const std::string code = s3::parse_error(answer->text).code;
  if (answer->ok() || code == "BucketAlreadyOwnedByYou") return {};
  if (code == "BucketAlreadyExists") return conflict(place + ": is someone else's");
  return (*client)->failure(*answer).at(place);
}

}  // namespace deltawire
