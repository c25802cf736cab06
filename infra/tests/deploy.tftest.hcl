# What must hold of every plan. tests/infra/test_terraform.py makes mistakes that these must find.
# With the provider mocked, values that only Google knows are made up.
mock_provider "google" {
  mock_data "google_project" {
    defaults = { number = "123456789012" }
  }
  mock_resource "google_cloud_run_v2_service" {
    defaults = { uri = "https://service-abc-ew.a.run.app" }
  }
}

override_resource {
  target = google_service_account.push
  values = {
    email  = "empanel-push@empanel-test.iam.gserviceaccount.com"
    member = "serviceAccount:empanel-push@empanel-test.iam.gserviceaccount.com"
    name   = "projects/empanel-test/serviceAccounts/empanel-push@empanel-test.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_service_account.scheduler
  values = {
    email  = "empanel-scheduler@empanel-test.iam.gserviceaccount.com"
    member = "serviceAccount:empanel-scheduler@empanel-test.iam.gserviceaccount.com"
    name   = "projects/empanel-test/serviceAccounts/empanel-scheduler@empanel-test.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_pubsub_topic.topic["dead-letter"]
  values = { id = "projects/empanel-test/topics/empanel-dead-letter" }
}

override_resource {
  target = google_project_iam_custom_role.ledger
  values = { id = "projects/empanel-test/roles/empanelLedger" }
}

override_resource {
  target = google_service_account.service["api"]
  values = {
    email  = "empanel-api@empanel-test.iam.gserviceaccount.com"
    member = "serviceAccount:empanel-api@empanel-test.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_service_account.service["evaluate"]
  values = {
    email  = "empanel-evaluate@empanel-test.iam.gserviceaccount.com"
    member = "serviceAccount:empanel-evaluate@empanel-test.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_service_account.service["notify"]
  values = {
    email  = "empanel-notify@empanel-test.iam.gserviceaccount.com"
    member = "serviceAccount:empanel-notify@empanel-test.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_service_account.service["reconcile"]
  values = {
    email  = "empanel-reconcile@empanel-test.iam.gserviceaccount.com"
    member = "serviceAccount:empanel-reconcile@empanel-test.iam.gserviceaccount.com"
  }
}

override_resource {
  target = google_service_account.service["dead_letter"]
  values = {
    email  = "empanel-dead-letter@empanel-test.iam.gserviceaccount.com"
    member = "serviceAccount:empanel-dead-letter@empanel-test.iam.gserviceaccount.com"
  }
}

variables {
  project_id              = "empanel-test"
  image                   = "europe-west1-docker.pkg.dev/empanel-test/empanel/empanel@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  owner                   = "team"
  alarm_emails            = ["team@example.com"]
  runbook_url             = "https://git.example.com/infra/RUNBOOK.md"
  seats_per_second        = 100
  provider_keys           = { OPENAI_API_KEY = "3", GEMINI_API_KEY = "1" }
  webhook_secrets_version = "2"
  attempts_per_hour_alarm = 1000
}

run "services" {
  command = apply

  assert {
    condition     = toset(keys(google_cloud_run_v2_service.service)) == toset(["api", "evaluate", "notify", "reconcile", "dead_letter"])
    error_message = "There are five services, one a target."
  }

  assert {
    condition = alltrue([
      for target, service in google_cloud_run_v2_service.service :
      length([for env in service.template[0].containers[0].env : env if env.name == "FUNCTION_TARGET" && env.value == target]) == 1
    ])
    error_message = "Each service is told its own target."
  }

  assert {
    condition     = alltrue([for service in google_cloud_run_v2_service.service : service.template[0].containers[0].image == var.image])
    error_message = "All services run the one image, by digest."
  }

  assert {
    condition     = alltrue([for target, service in google_cloud_run_v2_service.service : service.ingress == "INGRESS_TRAFFIC_INTERNAL_ONLY" if target != "api"])
    error_message = "Only the API can be reached from outside."
  }

  assert {
    condition     = alltrue([for target, service in google_cloud_run_v2_service.service : service.invoker_iam_disabled == false if target != "api"])
    error_message = "A pushed service without Cloud Run's guard would take anybody's messages."
  }

  assert {
    condition = alltrue([
      for target, service in google_cloud_run_v2_service.service :
      length([for env in service.template[0].containers[0].env : env if env.name == "EMPANEL_PUSH_SIGNATURE"]) == (target == "api" ? 0 : 1)
    ])
    error_message = "Exactly the guarded services are told that Cloud Run has checked the token's signature."
  }

  assert {
    condition = alltrue([
      for target, service in google_cloud_run_v2_service.service : toset([
        for env in service.template[0].containers[0].env : env.value if env.name == "EMPANEL_PUSH_AUDIENCE"
      ]) == toset(service.custom_audiences) if target != "api"
    ])
    error_message = "A service expects the audience that it answers to."
  }

  assert {
    condition     = length(distinct([for service in google_cloud_run_v2_service.service : service.custom_audiences[0]])) == 5
    error_message = "No audience opens two services."
  }

  assert {
    condition     = alltrue([for service in google_cloud_run_v2_service.service : service.template[0].max_instance_request_concurrency == 80])
    error_message = "Concurrency is 80."
  }

  assert {
    condition = alltrue([
      for service in google_cloud_run_v2_service.service :
      one([for env in service.template[0].containers[0].env : env.value if env.name == "EMPANEL_REQUEST_SLOTS"]) == "80"
    ])
    error_message = "A process knows how many requests it is given at once."
  }

  assert {
    condition = [
      for name in ["EMPANEL_WAITS", "EMPANEL_TENANT_WAITS"] :
      one([for env in google_cloud_run_v2_service.service["api"].template[0].containers[0].env : env.value if env.name == name])
    ] == ["60", "30"]
    error_message = "Of 80 requests at once 60 may be waits and streams, 30 of them one tenant's."
  }

  assert {
    condition     = alltrue([for service in google_cloud_run_v2_service.service : service.template[0].containers[0].resources[0].cpu_idle])
    error_message = "Idle instances are not billed."
  }

  assert {
    condition     = google_cloud_run_v2_service.service["evaluate"].template[0].scaling[0].max_instance_count == 67
    error_message = "100 seats a second of 20 s are 2,000 at once: 67 instances of 60 calls, half packed."
  }

  assert {
    condition     = google_cloud_run_v2_service.service["api"].template[0].scaling[0].max_instance_count == 4
    error_message = "40 requests at once are one instance of the API, 100 callers who wait two more, and one is to spare."
  }

  assert {
    condition     = alltrue([for target in ["evaluate", "notify", "dead_letter"] : google_cloud_run_v2_service.service[target].template[0].timeout == "600s"])
    error_message = "A pushed request may take as long as Pub/Sub waits."
  }

  assert {
    condition     = alltrue([for service in google_cloud_run_v2_service.service : service.traffic[0].percent == 100 && service.traffic[0].type == "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST"])
    error_message = "Without a roll-back all traffic goes to the latest revision."
  }

  assert {
    condition     = alltrue([for service in google_cloud_run_v2_service.service : service.deletion_protection])
    error_message = "Services are protected from deletion."
  }
}

run "few_slots" {
  command = apply

  variables {
    concurrency          = 8
    provider_concurrency = 6
  }

  assert {
    condition = [
      for name in ["EMPANEL_WAITS", "EMPANEL_TENANT_WAITS"] :
      one([for env in google_cloud_run_v2_service.service["api"].template[0].containers[0].env : env.value if env.name == name])
    ] == ["6", "3"]
    error_message = "Waits and streams never fill an instance."
  }
}

run "messages" {
  command = apply

  assert {
    condition     = alltrue([for subscription in google_pubsub_subscription.push : subscription.ack_deadline_seconds == 600])
    error_message = "The acknowledgement deadline is 600 s."
  }

  assert {
    condition     = alltrue([for subscription in google_pubsub_subscription.push : subscription.ack_deadline_seconds > var.handler_deadline_seconds + 5])
    error_message = "A message must not come again while its handler may still work on it."
  }

  assert {
    condition     = alltrue([for subscription in google_pubsub_subscription.push : subscription.expiration_policy[0].ttl == ""])
    error_message = "Subscriptions never expire."
  }

  assert {
    condition = alltrue([
      for subscription in google_pubsub_subscription.push :
      subscription.retry_policy[0].minimum_backoff == "10s" && subscription.retry_policy[0].maximum_backoff == "600s"
    ])
    error_message = "Retries back off from 10 to 600 s."
  }

  assert {
    condition = alltrue([
      for target, subscription in google_pubsub_subscription.push :
      subscription.push_config[0].push_endpoint == "${google_cloud_run_v2_service.service[target].uri}/"
    ])
    error_message = "A subscription pushes to the root of its own service."
  }

  assert {
    condition = alltrue([
      for target, subscription in google_pubsub_subscription.push :
      subscription.push_config[0].oidc_token[0].audience == google_cloud_run_v2_service.service[target].custom_audiences[0]
    ])
    error_message = "A push token names the audience of its service; any other is a 403 for ever."
  }

  assert {
    condition = alltrue([
      for subscription in google_pubsub_subscription.push :
      subscription.push_config[0].oidc_token[0].service_account_email == google_service_account.push.email
    ])
    error_message = "Messages are pushed by the push account."
  }

  assert {
    condition = alltrue([
      for target, subscription in google_pubsub_subscription.push :
      subscription.dead_letter_policy[0].max_delivery_attempts == 100 && subscription.dead_letter_policy[0].dead_letter_topic == "projects/empanel-test/topics/empanel-dead-letter"
      if target != "dead_letter"
    ])
    error_message = "After 100 deliveries a message goes to the dead-letter topic."
  }

  assert {
    condition     = google_pubsub_subscription.push["dead_letter"].topic == google_pubsub_topic.topic["dead-letter"].id
    error_message = "The dead-letter topic has a subscription, or dead letters are lost."
  }

  assert {
    condition     = toset([for topic in google_pubsub_topic.topic : topic.name]) == toset(["empanel-evaluate", "empanel-notify", "empanel-events", "empanel-dead-letter"])
    error_message = "The topics have the names that the code knows."
  }

  assert {
    condition = (
      google_service_account_iam_member.agent_makes_push_tokens.role == "roles/iam.serviceAccountTokenCreator" &&
      google_service_account_iam_member.agent_makes_push_tokens.member == "serviceAccount:service-123456789012@gcp-sa-pubsub.iam.gserviceaccount.com" &&
      google_service_account_iam_member.agent_makes_push_tokens.service_account_id == google_service_account.push.name
    )
    error_message = "Pub/Sub's account may make tokens of the push account."
  }

  assert {
    condition = (
      google_pubsub_topic_iam_member.agent_publishes_dead_letters.role == "roles/pubsub.publisher" &&
      google_pubsub_topic_iam_member.agent_publishes_dead_letters.member == "serviceAccount:service-123456789012@gcp-sa-pubsub.iam.gserviceaccount.com" &&
      google_pubsub_topic_iam_member.agent_publishes_dead_letters.topic == google_pubsub_topic.topic["dead-letter"].id
    )
    error_message = "Pub/Sub's account may publish dead letters."
  }

  assert {
    condition = (
      toset(keys(google_pubsub_subscription_iam_member.agent_takes_dead_letters)) == toset(["evaluate", "notify"]) &&
      alltrue([
        for grant in google_pubsub_subscription_iam_member.agent_takes_dead_letters :
        grant.role == "roles/pubsub.subscriber" && grant.member == "serviceAccount:service-123456789012@gcp-sa-pubsub.iam.gserviceaccount.com"
      ])
    )
    error_message = "Pub/Sub's account may take dead letters out of every subscription that has them."
  }

  assert {
    condition = alltrue([
      for name, job in google_cloud_scheduler_job.reconcile :
      job.http_target[0].uri == "${google_cloud_run_v2_service.service["reconcile"].uri}/?mode=${name}" &&
      job.http_target[0].oidc_token[0].audience == google_cloud_run_v2_service.service["reconcile"].custom_audiences[0] &&
      job.http_target[0].oidc_token[0].service_account_email == google_service_account.scheduler.email
    ])
    error_message = "The clocks call reconcile as the scheduler account, with reconcile's audience."
  }

  assert {
    condition     = google_cloud_scheduler_job.reconcile["repair"].schedule == "* * * * *" && google_cloud_scheduler_job.reconcile["audit"].schedule == "13 * * * *"
    error_message = "Repair runs each minute, the audit each hour."
  }

  assert {
    condition = alltrue([
      for job in google_cloud_scheduler_job.reconcile :
      tonumber(trimsuffix(job.attempt_deadline, "s")) <= tonumber(trimsuffix(google_cloud_run_v2_service.service["reconcile"].template[0].timeout, "s"))
    ])
    error_message = "Reconcile may take as long as the scheduler waits."
  }
}

run "rights" {
  command = apply

  assert {
    condition     = length(distinct([for account in google_service_account.service : account.account_id])) == 5
    error_message = "Each service has an account of its own."
  }

  assert {
    condition     = toset(google_project_iam_custom_role.ledger.permissions) == toset(["datastore.databases.get", "datastore.entities.create", "datastore.entities.get", "datastore.entities.list", "datastore.entities.update"])
    error_message = "No service deletes documents or administers the database."
  }

  assert {
    condition     = alltrue([for grant in google_project_iam_member.ledger : grant.role == "projects/empanel-test/roles/empanelLedger" && strcontains(grant.condition[0].expression, "databases/(default)")])
    error_message = "The ledger's role is for the ledger's database only."
  }

  assert {
    condition = toset(keys(google_pubsub_topic_iam_member.service)) == toset([
      "api/evaluate", "api/notify", "evaluate/evaluate", "evaluate/notify", "notify/events",
      "reconcile/evaluate", "reconcile/notify", "dead_letter/notify",
    ])
    error_message = "A service publishes to the topics that its code publishes to, and no other."
  }

  assert {
    condition = alltrue([
      for grants in [google_pubsub_topic_iam_member.service, google_storage_bucket_iam_member.service, google_project_iam_member.ledger] : alltrue([
        for key, grant in grants : grant.member == google_service_account.service[split("/", key)[0]].member
      ])
    ])
    error_message = "A grant goes to the account of the service it is for."
  }

  assert {
    condition     = alltrue([for target, service in google_cloud_run_v2_service.service : service.template[0].service_account == google_service_account.service[target].email])
    error_message = "Each service runs as its own account."
  }

  assert {
    condition     = alltrue([for grant in google_pubsub_topic_iam_member.service : grant.role == "roles/pubsub.publisher"])
    error_message = "Services only publish: nobody pulls."
  }

  assert {
    condition = toset(keys(google_storage_bucket_iam_member.service)) == toset([
      "api/read", "api/create", "api/purge", "evaluate/read", "evaluate/create", "reconcile/read", "reconcile/create", "reconcile/purge",
    ])
    error_message = "notify and dead_letter have no business in the bucket; evaluate does not delete."
  }

  assert {
    condition     = toset([for grant in google_storage_bucket_iam_member.service : grant.role]) == toset(["roles/storage.objectViewer", "roles/storage.objectCreator", google_project_iam_custom_role.purge.id])
    error_message = "No role overwrites objects or administers the bucket."
  }

  assert {
    condition = toset(keys(google_secret_manager_secret_iam_member.reader)) == toset([
      "notify", "api/empanel-openai-api-key", "api/empanel-gemini-api-key", "evaluate/empanel-openai-api-key", "evaluate/empanel-gemini-api-key",
    ])
    error_message = "Provider keys are for api and evaluate, webhook secrets for notify."
  }

  assert {
    condition = alltrue([
      for service in google_cloud_run_v2_service.service : alltrue([
        for env in service.template[0].containers[0].env : can(tonumber(env.value_source[0].secret_key_ref[0].version))
        if length(env.value_source) > 0
      ])
    ])
    error_message = "Secrets are pinned by version."
  }

  assert {
    condition     = alltrue([for target, grant in google_cloud_run_v2_service_iam_member.push : grant.role == "roles/run.invoker" && grant.member == google_service_account.push.member]) && toset(keys(google_cloud_run_v2_service_iam_member.push)) == toset(["evaluate", "notify", "dead_letter"])
    error_message = "The push account may invoke the pushed services, and nothing else."
  }

  assert {
    condition     = google_cloud_run_v2_service_iam_member.scheduler.member == google_service_account.scheduler.member && google_cloud_run_v2_service_iam_member.scheduler.role == "roles/run.invoker"
    error_message = "The scheduler account may invoke reconcile."
  }

  assert {
    condition     = length(google_cloud_run_v2_service_iam_member.api) == 0 && length(google_project_iam_member.vertex) == 0
    error_message = "Nothing is granted that was not asked for."
  }
}

run "tenants" {
  command = apply

  variables {
    tenants_file_version   = "5"
    providers_file_version = "4"
    operator_tenant        = "ops"
  }

  assert {
    condition = alltrue([
      for target, service in google_cloud_run_v2_service.service : join(",", [
        for env in service.template[0].containers[0].env : env.value if env.name == "EMPANEL_TENANTS"
      ]) == (target == "api" ? "/etc/empanel-tenants/tenants.toml" : "")
    ])
    error_message = "The API, and it alone, is told of the tenants' file."
  }

  assert {
    condition = alltrue([
      for target, service in google_cloud_run_v2_service.service : join(",", flatten([
        for volume in service.template[0].volumes : [
          volume.secret[0].secret, tolist(volume.secret[0].items)[0].path, tolist(volume.secret[0].items)[0].version
        ] if volume.name == "tenants"
      ])) == (target == "api" ? "empanel-tenants,tenants.toml,5" : "")
    ])
    error_message = "The tenants' file is the pinned version of its secret."
  }

  assert {
    condition = alltrue([
      for service in google_cloud_run_v2_service.service : (
        { for volume in service.template[0].volumes : volume.name => true } ==
        { for mount in service.template[0].containers[0].volume_mounts : mount.name => true }
        ) && length(distinct([for mount in service.template[0].containers[0].volume_mounts : mount.mount_path])
      ) == length(service.template[0].containers[0].volume_mounts)
    ])
    error_message = "Each file is mounted, in a folder of its own: a secret hides what else is in its folder."
  }

  assert {
    condition = alltrue([
      for env in google_cloud_run_v2_service.service["api"].template[0].containers[0].env :
      startswith(env.value, "${one([for mount in google_cloud_run_v2_service.service["api"].template[0].containers[0].volume_mounts : mount.mount_path if mount.name == "tenants"])}/")
      if env.name == "EMPANEL_TENANTS"
    ])
    error_message = "The tenants' file is where the API looks for it."
  }

  assert {
    condition = join(",", [
      for env in google_cloud_run_v2_service.service["api"].template[0].containers[0].env : env.value if env.name == "EMPANEL_API_AUDIENCE"
    ]) == one(google_cloud_run_v2_service.service["api"].custom_audiences)
    error_message = "With accounts the API expects the audience it is known by; without one it refuses to start."
  }

  assert {
    condition = toset([
      for key, grant in google_secret_manager_secret_iam_member.reader : key if endswith(grant.secret_id, google_secret_manager_secret.secret["empanel-tenants"].id)
      ]) == toset(["tenants"]) && (
      google_secret_manager_secret_iam_member.reader["tenants"].member == google_service_account.service["api"].member
    )
    error_message = "The tenants' file is for the API's account alone."
  }

  assert {
    condition = alltrue([
      for target, service in google_cloud_run_v2_service.service : join(",", [
        for env in service.template[0].containers[0].env : env.value if env.name == "EMPANEL_OPERATOR_TENANT"
      ]) == (target == "api" ? "ops" : "")
    ])
    error_message = "The API knows whose operators see what belongs to no tenant."
  }
}

run "without_tenants" {
  command = apply

  assert {
    condition = alltrue([
      for service in google_cloud_run_v2_service.service : length([
        for env in service.template[0].containers[0].env : env if contains(["EMPANEL_TENANTS", "EMPANEL_API_AUDIENCE", "EMPANEL_OPERATOR_TENANT"], env.name)
      ]) == 0 && length(service.template[0].volumes) == 0
    ])
    error_message = "Without a tenants' file no account is taken, and nothing is mounted."
  }
}

run "records" {
  command = apply

  assert {
    condition     = google_firestore_database.ledger.point_in_time_recovery_enablement == "POINT_IN_TIME_RECOVERY_ENABLED" && google_firestore_database.ledger.delete_protection_state == "DELETE_PROTECTION_ENABLED"
    error_message = "The ledger can be had back, and is not deleted by mistake."
  }

  assert {
    condition     = length(google_firestore_index.composite) == length(jsondecode(file("firestore.indexes.json")).indexes)
    error_message = "Every declared index is made."
  }

  assert {
    condition     = alltrue([for field in google_firestore_field.exempt : length(field.ttl_config) == (field.field == "expire_at" ? 1 : 0)])
    error_message = "Time to live is on expire_at and on nothing else."
  }

  assert {
    condition     = google_storage_bucket.objects.uniform_bucket_level_access && google_storage_bucket.objects.public_access_prevention == "enforced" && !google_storage_bucket.objects.force_destroy
    error_message = "The bucket is private and is not emptied by a destroy."
  }

  assert {
    condition     = google_storage_bucket.objects.soft_delete_policy[0].retention_duration_seconds == 604800
    error_message = "Deleted objects can be had back for seven days."
  }

  assert {
    condition = alltrue([
      for rule in google_storage_bucket.objects.lifecycle_rule : one(rule.condition).age > var.retention_days
      if one(rule.action).type == "Delete"
    ])
    error_message = "No object is deleted before its retention is over."
  }
}

run "roll_back" {
  command = apply

  variables {
    serving_revisions = { evaluate = "empanel-evaluate-00041-abc" }
  }

  assert {
    condition = (
      google_cloud_run_v2_service.service["evaluate"].traffic[0].revision == "empanel-evaluate-00041-abc" &&
      google_cloud_run_v2_service.service["evaluate"].traffic[0].percent == 100 &&
      google_cloud_run_v2_service.service["evaluate"].traffic[1].percent == 0 &&
      google_cloud_run_v2_service.service["api"].traffic[0].percent == 100
    )
    error_message = "A named revision gets all the traffic of its service, and no other service's."
  }
}

run "guarded_api" {
  command = apply

  variables {
    api_invokers      = ["group:callers@example.com"]
    provider_settings = { GOOGLE_CLOUD_LOCATION = "europe-west1" }
  }

  assert {
    condition     = google_cloud_run_v2_service.service["api"].invoker_iam_disabled == false && length(google_cloud_run_v2_service_iam_member.api) == 1
    error_message = "With invokers named, Cloud Run guards the API too."
  }

  assert {
    condition     = toset(keys(google_project_iam_member.vertex)) == toset(["evaluate"])
    error_message = "With a location, evaluate may use Vertex AI."
  }
}

run "alarms" {
  command = apply

  variables {
    monthly_budget = { billing_account = "012345-6789AB-CDEF01", currency = "EUR", units = 100 }
  }

  assert {
    condition = alltrue([
      for policy in concat(
        values(google_monitoring_alert_policy.count),
        [google_monitoring_alert_policy.repair, google_monitoring_alert_policy.errors, google_monitoring_alert_policy.backlog],
      ) :
      policy.user_labels.owner == "team" && length(policy.notification_channels) == 1 &&
      one(policy.documentation[0].links).url == "https://git.example.com/infra/RUNBOOK.md#${policy.user_labels.runbook}"
    ])
    error_message = "Every alarm has an owner, somebody who is told, and a section of the runbook."
  }

  assert {
    condition = length(setsubtract(
      ["aged-gaps", "missing-outputs", "dead-letters", "budget"], keys(google_monitoring_alert_policy.count)
    )) == 0
    error_message = "There are alarms for aged gaps, missing outputs, dead letters and spending."
  }

  assert {
    condition     = strcontains(google_monitoring_alert_policy.repair.conditions[0].condition_absent[0].filter, "empanel-reconcile")
    error_message = "Somebody is told when repair does not run."
  }

  assert {
    condition     = strcontains(google_monitoring_alert_policy.count["aged-gaps"].conditions[0].condition_threshold[0].filter, "one_of(\"aged_gap\")")
    error_message = "The alarm for aged gaps counts aged gaps."
  }

  assert {
    condition     = length(google_billing_budget.platform) == 1
    error_message = "A budget that is stated is made."
  }

  assert {
    condition     = strcontains(google_logging_project_exclusion.good_requests.filter, "log_id(\"run.googleapis.com/requests\") AND severity<WARNING AND httpRequest.status<400")
    error_message = "Only Cloud Run's lines about good requests are left out of the logs."
  }

  assert {
    condition     = google_firestore_backup_schedule.weekly.retention == "3024000s" && length(google_firestore_backup_schedule.weekly.weekly_recurrence) == 1
    error_message = "There is a backup of each of the last five weeks."
  }
}

run "telemetry_goes_nowhere_by_default" {
  command = plan

  assert {
    condition = alltrue([
      for service in google_cloud_run_v2_service.service :
      length([for env in service.template[0].containers[0].env : env if startswith(env.name, "OTEL_")]) == 0
    ])
    error_message = "Without a collector no service may be told of one: it would wait for nothing."
  }
}

run "telemetry_goes_to_the_collector" {
  command = plan

  variables {
    otlp = { endpoint = "http://localhost:4318" }
  }

  assert {
    condition = alltrue([
      for service in google_cloud_run_v2_service.service :
      one([for env in service.template[0].containers[0].env : env.value if env.name == "OTEL_EXPORTER_OTLP_ENDPOINT"]) == "http://localhost:4318"
      && one([for env in service.template[0].containers[0].env : env.value if env.name == "OTEL_TRACES_SAMPLER"]) == "parentbased_always_on"
    ])
    error_message = "Every service sends, or traces end between two of them."
  }
}
