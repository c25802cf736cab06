# The ledger. Its indexes are in firestore.indexes.json, in the Firebase tools' own format; a test
# holds them against every query that the code makes (tests/infra).
locals {
  declared = jsondecode(file("${path.module}/firestore.indexes.json"))
  indexes = {
    for index in local.declared.indexes :
    "${index.collectionGroup}/${join(",", [for field in index.fields : "${field.fieldPath} ${try(field.order, field.arrayConfig)}"])}" => index
  }
  fields = { for field in local.declared.fieldOverrides : "${field.collectionGroup}/${field.fieldPath}" => field }
}

resource "google_firestore_database" "ledger" {
  name                              = local.ledger_database
  location_id                       = var.region
  type                              = "FIRESTORE_NATIVE"
  concurrency_mode                  = "PESSIMISTIC"
  point_in_time_recovery_enablement = "POINT_IN_TIME_RECOVERY_ENABLED"
  delete_protection_state           = var.protect ? "DELETE_PROTECTION_ENABLED" : "DELETE_PROTECTION_DISABLED"
  deletion_policy                   = var.protect ? "ABANDON" : "DELETE"
  depends_on                        = [google_project_service.used]
}

# Point-in-time recovery has every minute of seven days; weekly backups reach five weeks further. Each
# is a whole copy and is billed as one (COST.md, "Keeping").
resource "google_firestore_backup_schedule" "weekly" {
  database  = google_firestore_database.ledger.name
  retention = "${5 * 7 * 24 * 3600}s"

  weekly_recurrence {
    day = "SUNDAY"
  }
}

resource "google_firestore_index" "composite" {
  for_each    = local.indexes
  database    = google_firestore_database.ledger.name
  collection  = each.value.collectionGroup
  query_scope = each.value.queryScope

  dynamic "fields" {
    for_each = each.value.fields
    content {
      field_path   = fields.value.fieldPath
      order        = try(fields.value.order, null)
      array_config = try(fields.value.arrayConfig, null)
    }
  }
}

# Fields without single-field indexes: times, which grow and so would send every write to the same
# end of one index (500 writes a second at most); texts and maps that nobody asks for; and all that
# nobody asks for of the records of which there is one a seat or a run: entries are billed as stored.
resource "google_firestore_field" "exempt" {
  for_each   = local.fields
  database   = google_firestore_database.ledger.name
  collection = each.value.collectionGroup
  field      = each.value.fieldPath

  index_config {}

  dynamic "ttl_config" {
    for_each = try(each.value.ttl, false) ? [true] : []
    content {}
  }
}
