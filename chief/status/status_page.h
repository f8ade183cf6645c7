// The status page of a chief: one HTML file, which shows a running job live by server-sent events
// (page_feed.h). Read-only. docs/status.md describes it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "chief/status/page_feed.h"
#include "common/web/http_server.h"

namespace muster::chief {

// The page, page.html.
extern const char kStatusPage[];

// Returns the Content-Security-Policy of `page`. It permits the page's own script and style, by
// their hashes, and connections to the page's own server, and nothing else.
std::string PolicyOf(const std::string& page);

class StatusPage {
 public:
  // Binds the port. Readers who connect wait until Start. The number of streams is set here.
  // Returns the errors of HttpServer::Make.
  static absl::StatusOr<std::unique_ptr<StatusPage>> Bind(web::HttpOptions options);
  // Serves "/", "/events" and "/status.json". `source` and `watch` are used until the destructor
  // returns. Call it once.
  void Start(PageFeed::Source source, const RunWatch& watch);
  std::string url() const { return server_->url(); }
  // Waits a moment, so that readers who are connected get the last state. Does not wait without
  // readers, or before Start.
  void ShowEnd();

 private:
  explicit StatusPage(std::unique_ptr<web::HttpServer> server) : server_(std::move(server)) {}

  std::unique_ptr<PageFeed> feed_;           // Null before Start.
  std::unique_ptr<web::HttpServer> server_;  // Its handlers use feed_.
};

}  // namespace muster::chief
