// StatusPage serves the status page of a chief over HTTP. The page is one HTML file, which shows
// the state of a running job and updates it with server-sent events (page_feed.h). Readers cannot
// change the job. See docs/status.md.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "chief/status/page_feed.h"
#include "common/web/http_server.h"

namespace muster::chief {

// The content of page.html.
extern const char kStatusPage[];

class StatusPage {
 public:
  // Binds the port. Clients that connect before Start wait for Start. Sets HttpOptions::max_streams
  // itself. Returns the errors of HttpServer::Make.
  static absl::StatusOr<std::unique_ptr<StatusPage>> Bind(web::HttpOptions options);
  // Starts to serve "/", "/events" and "/status.json". `source` and `watch` are used until the
  // destructor returns. Must be called at most once.
  void Start(PageFeed::Source source, const RunWatch& watch);
  std::string url() const { return server_->url(); }
  // Blocks for a moment, so that connected readers receive the last state. Returns at once if there
  // are no readers, or before Start.
  void ShowEnd();

 private:
  explicit StatusPage(std::unique_ptr<web::HttpServer> server) : server_(std::move(server)) {}

  std::unique_ptr<PageFeed> feed_;           // Null before Start.
  std::unique_ptr<web::HttpServer> server_;  // Its handlers use feed_.
};

}  // namespace muster::chief
