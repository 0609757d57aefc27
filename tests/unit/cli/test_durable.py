"""What commands about durable subscriptions share."""

import milepost
from milepost.batch import Batch
from milepost.batch.ids import Ids, MessageId
from milepost.cli.durable import encoded
from milepost.schema import ddl

TYPE = ddl.parse("DEFINE MESSAGETYPE m; NODE top; id: INTEGER; END; ROOT top; END;").schema


def test_the_id_of_a_message_is_not_its_field():
    for schema in (milepost.parse_schema("m: [id: int]"), TYPE):
        messages = list(Batch.encode(schema, [{"id": 9}], Ids.one(1, 2, 3)))
        batch, ids = encoded(schema, messages)
        assert (batch.to_pylist(), ids) == ([{"id": 9}], [str(MessageId(1, 2, 3))])
