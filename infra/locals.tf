# What the other files look up: the table of services, and the instances that the throughput needs.
locals {
  # A message's work and its rights are told here once, service by service.
  # publishes: topics. bucket: read, create, purge. keys: whether it may read the providers' keys
  # (api because a provider is offered only where its key is, evaluate because it calls).
  services = {
    api = {
      publishes = ["evaluate", "notify"]
      bucket    = ["read", "create", "purge"]
      keys      = true
      timeout   = 300
      instances = local.api_instances
    }
    evaluate = {
      publishes = ["evaluate", "notify"]
      bucket    = ["read", "create"]
      keys      = true
      timeout   = var.ack_deadline_seconds
      instances = local.evaluate_instances
    }
    notify = {
      publishes = ["events"]
      bucket    = []
      keys      = false
      timeout   = var.ack_deadline_seconds
      instances = local.notify_instances
    }
    reconcile = {
      publishes = ["evaluate", "notify"]
      bucket    = ["read", "create", "purge"] # it finishes what a purge left
      keys      = false
      timeout   = local.audit_seconds
      instances = 2 # a repair beside an audit
    }
    dead_letter = {
      publishes = ["notify"]
      bucket    = []
      keys      = false
      timeout   = var.ack_deadline_seconds
      instances = 2
    }
  }

  pushed   = toset(["evaluate", "notify", "dead_letter"]) # by Pub/Sub, each from one subscription
  internal = toset([for target in keys(local.services) : target if target != "api"])

  # Names in Google Cloud have hyphens.
  names = { for target in keys(local.services) : target => "empanel-${replace(target, "_", "-")}" }

  # Fixed, so that a service knows its own audience before it has an address.
  audiences = { for target, name in local.names : target => "https://${name}.${var.project_id}.internal" }

  repair_attempt_seconds = 180
  audit_seconds          = 1800 # the longest that Cloud Scheduler waits

  # Instances. A quarter of the slots is for deliveries that wait for another's answer; a provider's
  # slots bound the rest. Half packed, because Cloud Run adds instances before the old ones are full.
  seats_at_once      = var.seats_per_second * var.seat_seconds
  calls_per_instance = min(floor(var.concurrency * 0.75), var.provider_concurrency)
  packed             = 0.5
  evaluate_instances = max(2, ceil(local.seats_at_once / (local.calls_per_instance * local.packed)))
  # A seat costs the API about two requests (its share of a submission, its readers) of 0.2 s each.
  # Requests that stay come on top; in each instance they leave a quarter of the slots to all others.
  waits         = floor(var.concurrency * 0.75)
  api_busy      = ceil(var.seats_per_second * 2 * 0.2 / (var.concurrency * local.packed))
  api_instances = max(2, var.min_instances, local.api_busy + ceil(var.waiting_callers / local.waits) + 1)
  # At most one notification a seat, 2 s each where receivers are slow.
  notify_instances = max(2, ceil(var.seats_per_second * 2 / (var.concurrency * local.packed)))

  ledger_database = "(default)"
  bucket_name     = "${var.project_id}-empanel"
}
